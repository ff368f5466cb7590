"""The NVIDIA toolkit step on a node that seems to have GPUs: stub packages, real apt and Docker."""

import json
import time
from pathlib import Path

import pytest
from in_lab import LabWorld, until

from bootstrap.facts import read_facts
from bootstrap.progress import NodeLog
from bootstrap.steps.nvidia_toolkit import PACKAGES, ToolkitSource, ensure_toolkit
from contract.errors import StepError
from remote import Connection, connect_until

VERSION, LATER, LAST = "1.17.8-1", "1.18.0-1", "1.18.1-1"
REPOSITORY = Path(__file__).with_name("stub_toolkit_repository.py").read_text()
HOLD_LOCK = """
import fcntl, time
with open("/var/lib/dpkg/lock-frontend", "w") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    open("/run/lock-held", "w").close()
    time.sleep(8)
open("/run/lock-released", "w").close()
"""


@pytest.fixture(scope="module")
def node(lab: LabWorld):
    """A node that shows two GPUs, its connection, and its stub source."""
    (instance_id,) = lab.launch()
    target = lab.target(instance_id, seconds=60)
    with connect_until(target, timeout_seconds=30, login=lab.login()) as connection:
        until(lambda: read_facts(connection, image=lab.lab.image).docker.running, seconds=60, what="Docker runs")
        made = connection.run(
            ["python3", "-", VERSION, LATER, LAST], sudo=True, stdin=REPOSITORY, timeout_seconds=120
        ).stdout
        yield connection, json.loads(made.splitlines()[-1])
    lab.terminate(instance_id)


def ensure(lab: LabWorld, connection: Connection, source: ToolkitSource | None) -> NodeLog:
    log = NodeLog(node="gpu", report=lambda _: None)
    ensure_toolkit(connection, log, read_facts(connection, image=lab.lab.image), image=lab.lab.image, source=source)
    return log


def docker_started(connection: Connection) -> str:
    shown = connection.run(
        ["systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "docker"], timeout_seconds=20
    )
    return shown.stdout


def test_without_packages_and_source_the_machine_image_is_named(lab, node):
    with pytest.raises(StepError, match="toolkit is missing") as caught:
        ensure(lab, node[0], None)
    assert "Deep Learning" in str(caught.value)


def test_packages_are_installed_held_and_configured_while_another_apt_holds_the_lock(lab, node):
    connection, repository = node
    holder = ["systemd-run", "--unit=hold-lock", "python3", "-c", HOLD_LOCK]
    connection.run(holder, sudo=True, timeout_seconds=20)
    until(lambda: connection.run(["test", "-e", "/run/lock-held"], timeout_seconds=9, check=False).ok, seconds=15)
    log = ensure(lab, connection, ToolkitSource(**repository, version=VERSION))
    assert log.changed
    assert connection.run(["test", "-e", "/run/lock-released"], timeout_seconds=9, check=False).ok
    facts = read_facts(connection, image=lab.lab.image)
    assert facts.toolkit.packages == dict.fromkeys(PACKAGES, VERSION)
    assert set(facts.toolkit.held) == set(PACKAGES)
    assert "nvidia" in facts.docker.runtimes
    assert connection.run(["dpkg", "--audit"], sudo=True, timeout_seconds=30).stdout == ""


def test_the_second_run_changes_nothing_and_docker_is_not_restarted(lab, node):
    connection, repository = node
    before = docker_started(connection)
    started = time.monotonic()
    log = ensure(lab, connection, ToolkitSource(**repository, version=VERSION))
    assert time.monotonic() - started < 5
    assert not log.changed
    assert docker_started(connection) == before


def test_a_hold_resists_an_upgrade(node):
    connection, _ = node
    connection.run(
        ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes", "upgrade", "nvidia-container-toolkit"],
        sudo=True,
        timeout_seconds=120,
        check=False,
    )
    shown = connection.run(["dpkg-query", "--show", "nvidia-container-toolkit"], timeout_seconds=20).stdout
    assert VERSION in shown


def test_a_new_version_moves_all_four_without_a_restart_of_docker(lab, node):
    connection, repository = node
    before = docker_started(connection)
    ensure(lab, connection, ToolkitSource(**repository, version=LATER))
    facts = read_facts(connection, image=lab.lab.image)
    assert facts.toolkit.packages == dict.fromkeys(PACKAGES, LATER)
    assert docker_started(connection) == before


def test_a_tampered_package_is_refused(lab, node):
    connection, repository = node
    package = f"/srv/toolkit/pool/nvidia-container-toolkit-base_{LAST}_all.deb"
    connection.run(["sh", "-c", f"printf x >> {package}"], sudo=True, timeout_seconds=20)
    with pytest.raises(StepError, match="could not be set up"):
        ensure(lab, connection, ToolkitSource(**repository, version=LAST))
    facts = read_facts(connection, image=lab.lab.image)
    assert facts.toolkit.packages == dict.fromkeys(PACKAGES, LATER)
