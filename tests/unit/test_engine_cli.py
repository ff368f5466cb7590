"""Finding, installing or building the Pulumi CLI: what is chosen, and what is said when nothing works."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from rehearsal.engine import cli, go_build, shims
from rehearsal.engine.shown_command import CommandFailedError, run_shown

NOWHERE = "http://127.0.0.1:9"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cli.cache_folder()


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, so that no tool of this machine is found."""
    folder = tmp_path / "on-path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def silent(_line: str) -> None:
    """Takes progress that a test does not look at."""


def test_a_recent_cli_with_its_language_host_is_used_as_found(on_path: Path, cache: Path) -> None:
    script(on_path / "pulumi", "echo v3.999.0")
    script(on_path / "pulumi-language-python", "exit 1")
    assert cli.ensure_cli(silent) == on_path
    assert not cache.exists()


def test_a_cli_behind_a_link_brings_its_own_language_host(on_path: Path, cache: Path, tmp_path: Path) -> None:
    real = script(tmp_path / "opt" / "pulumi", f"echo v{cli.OLDEST_VERSION}")
    script(tmp_path / "opt" / "pulumi-language-python", "exit 1")
    (on_path / "pulumi").symlink_to(real)
    assert cli.find_on_path(cache) == (on_path, "")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("echo v3.100.0", f"is 3.100.0, older than {cli.OLDEST_VERSION}"),
        ("exit 3", "does not answer"),
        ("echo v3.999.0", "has no pulumi-language-python beside it"),
    ],
)
def test_a_cli_that_will_not_do_is_passed_over_with_the_reason(
    on_path: Path, cache: Path, answer: str, reason: str
) -> None:
    script(on_path / "pulumi", answer)
    found, why = cli.find_on_path(cache)
    assert found is None
    assert reason in why


def test_the_cached_build_is_used_and_gets_this_checkouts_language_host(on_path: Path, cache: Path) -> None:
    built = script(cli.built_folder(cache) / "bin" / "pulumi", f"echo v{cli.VERSION}").parent
    assert cli.ensure_cli(silent) == built
    assert (built / "language_host.py").read_text() == Path(shims.__file__).with_name("language_host.py").read_text()
    assert os.access(built / "pulumi-language-python", os.X_OK)
    (on_path / "pulumi").symlink_to(built / "pulumi")
    assert "own cached one" in cli.find_on_path(cache)[1]


def test_the_cache_key_follows_modules_and_flags() -> None:
    assert go_build.build_key("3.274.1") == go_build.build_key("3.274.1")
    assert go_build.build_key("3.274.1") != go_build.build_key("3.274.2")


def test_where_no_way_works_one_error_says_what_was_tried(
    on_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(on_path / "go", "echo go1.19.8")
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, NOWHERE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    told: list[str] = []
    with pytest.raises(cli.EngineUnavailableError) as caught:
        cli.ensure_cli(told.append)
    text = str(caught.value)
    assert "on PATH: no pulumi" in text
    assert "official installer: " in text
    assert "cannot be reached" in text
    assert "built with Go: Go 1.19.8 on PATH is older than 1.26.6, and pip could not install one" in text
    assert "Next: install Pulumi" in text
    assert not [path for path in cache.iterdir() if path.name.startswith("new-")]


def test_a_cache_that_cannot_be_written_is_named(
    on_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert on_path.exists()
    blocker = tmp_path / "a-file"
    blocker.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    with pytest.raises(cli.EngineUnavailableError, match="a-file"):
        cli.ensure_cli(silent)


def test_a_second_process_waits_for_the_first(cache: Path) -> None:
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with cli.lock(cache, lambda _line: waiting.set()):
            order.append("second")

    with cli.lock(cache, silent):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_go_that_is_new_enough_is_used(on_path: Path, cache: Path) -> None:
    command = script(on_path / "go", "echo go1.99.1")
    assert go_build.get_go(cache, silent) == go_build.Go(command=str(command), version=(1, 99, 1))


def test_versions_are_compared_as_numbers() -> None:
    assert go_build.version_tuple("go1.26.10") > go_build.version_tuple("1.26.9")
    assert go_build.version_tuple("3.274.1-alpha.5") == (3, 274, 1)


def test_the_modules_are_pinned_at_the_version_that_is_installed() -> None:
    text = (go_build.MODULE_FOLDER / "go.mod").read_text()
    assert f"github.com/pulumi/pulumi/pkg/v3 v{cli.VERSION}\n" in text
    assert f"github.com/pulumi/pulumi/sdk/v3 v{cli.VERSION} " in text


def test_the_shim_prefers_the_projects_own_python(tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    shims.install_language_host(bin_folder)
    (bin_folder / "language_host.py").write_text("import sys; print(sys.executable, *sys.argv[1:])\n")
    project = tmp_path / "a project"
    inside = project / "infra" / "deep"
    inside.mkdir(parents=True)

    def host_python(cwd: Path) -> str:
        argv = [str(bin_folder / "pulumi-language-python"), "127.0.0.1:1"]
        return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    assert host_python(inside) == f"{sys.executable} 127.0.0.1:1"
    (project / ".venv" / "lib" / "python3.11" / "site-packages" / "grpc").mkdir(parents=True)
    python = script(project / ".venv" / "bin" / "python", 'echo "own python: $3"')
    assert python.exists()
    assert host_python(inside) == "own python: 127.0.0.1:1"


def test_the_shim_says_so_when_its_python_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone" / "python"))
    shims.install_language_host(tmp_path)
    argv = [str(tmp_path / "pulumi-language-python"), "127.0.0.1:1"]
    result = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False, timeout=30)
    assert result.returncode == 1
    assert "run make setup" in result.stderr


def test_a_shown_command_returns_its_last_lines() -> None:
    argv = ["sh", "-c", "echo one; echo; echo two >&2"]
    assert run_shown(argv, label="x", timeout_seconds=10, say=silent) == "one\ntwo"


def test_a_failed_command_shows_its_last_lines() -> None:
    with pytest.raises(CommandFailedError, match=r"x: exit code 3; last lines: broken pipe"):
        run_shown(["sh", "-c", "echo broken pipe; exit 3"], label="x", timeout_seconds=10, say=silent)


def test_a_command_that_does_not_exist_is_a_plain_failure() -> None:
    with pytest.raises(CommandFailedError, match="cannot be started"):
        run_shown(["/nonexistent/tool"], label="x", timeout_seconds=10, say=silent)


def test_a_command_past_its_deadline_is_ended_with_its_children(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    argv = ["sh", "-c", f"sleep 300 & echo $! > {mark}; wait"]
    started = time.monotonic()
    with pytest.raises(CommandFailedError, match="not done after 1 s"):
        run_shown(argv, label="x", timeout_seconds=1, say=silent)
    assert time.monotonic() - started < 10
    child = int(mark.read_text())
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
