"""Rules of the whole suite: order, no network in unit tests, no skips where they are forbidden, no one's account."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.engine.cli import ensure_cli

TESTS = Path(__file__).parent
ORDER = ("unit", "engine", "lab", "chaos")
NEED_DOCKER = ("lab", "chaos")
LOOPBACK = ["127.0.0.1", "::1"]
NO_DOCKER = "Docker does not answer (`docker info`): install it, start it, and be root or in its group"
KEPT_SETTINGS = ("AWS_CA_BUNDLE",)


def group_of(path: Path) -> str:
    """The folder under tests/ that a test file lies in."""
    parts = path.relative_to(TESTS).parts if path.is_relative_to(TESTS) else ()
    return parts[0] if parts else ""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A run in the background inherits an ignored SIGINT and would hand it on to the commands that tests interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.option.allow_unix_socket = True  # pytest-socket reads it in its own pytest_configure
    for name in [name for name in os.environ if name.startswith(("AWS_", "PULUMI_")) and name not in KEPT_SETTINGS]:
        del os.environ[name]
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        os.environ[name] = os.devnull


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: position for position, name in enumerate(ORDER)}
    items.sort(key=lambda item: rank.get(group_of(item.path), len(ORDER)))
    for item in items:
        if group_of(item.path) == "unit":
            item.add_marker(pytest.mark.allow_hosts(LOOPBACK))
    with_docker = [item for item in items if group_of(item.path) in NEED_DOCKER]
    if with_docker and not docker_answers():
        for item in with_docker:
            item.add_marker(pytest.mark.skip(reason=NO_DOCKER))


def docker_answers() -> bool:
    """Whether `docker info` works."""
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def forbid_skip(report: pytest.CollectReport | pytest.TestReport) -> None:
    """Turns a skip into a failure that keeps its reason, where RAYRIG_FORBID_SKIPS is set."""
    if report.skipped and os.environ.get("RAYRIG_FORBID_SKIPS") and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skips are forbidden here (RAYRIG_FORBID_SKIPS): {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    forbid_skip(report)
    return report


@pytest.fixture(scope="session")
def pulumi_folder() -> Path:
    """The folder of the real Pulumi CLI; got first if need be (minutes, told on stderr)."""
    return ensure_cli()
