"""Real daemons, without nodes and without a stack: moto on loopback, nothing else."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from contract.errors import ConfigError
from contract.exit_codes import ExitCode
from rehearsal import run
from rehearsal.world.lifecycle import start, status, stop
from rehearsal.world.places import places
from rehearsal.world.record import live_daemon, read_world

DEADLINE_SECONDS = 20


def begin(directory: Path, *, watch_pid: int | None = None) -> list[str]:
    said: list[str] = []
    start(places(directory), with_nodes=False, with_stack=False, watch_pid=watch_pid, say=said.append)
    return said


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    stop(places(tmp_path), say=str)


def test_a_life_from_start_to_stop(directory: Path):
    place = places(directory)
    begin(directory)
    world = read_world(place)
    assert world is not None
    assert world.lab is None
    assert world.account_id.startswith("0000")
    assert place.record.stat().st_mode & 0o777 == 0o600
    assert place.ssh_key.stat().st_mode & 0o777 == 0o600
    with urllib.request.urlopen(f"{world.endpoint_url}/rayrig-rehearsal", timeout=10) as answer:  # noqa: S310
        marker = json.load(answer)
    assert marker == {"worldId": world.world_id, "accountId": world.account_id, "region": "eu-west-1"}
    assert "used as it is" in begin(directory)[0]
    assert read_world(place) == world
    assert status(place)[0]
    argv = [sys.executable, "-m", "rehearsal", "--directory", str(directory), "stop"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert live_daemon(place) is None
    assert {path.name for path in directory.iterdir()} <= {"world.log", "empty", "requests.jsonl", "start.lock"}


def test_a_world_that_was_killed_is_said_and_replaced_and_one_made_for_a_process_ends_with_it(directory: Path):
    place = places(directory)
    begin(directory)
    first = read_world(place)
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: live_daemon(place) is None)
    well, lines = status(place)
    assert not well
    assert "died uncleanly" in next(iter(lines))

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert "removing what it left" in "".join(begin(directory, watch_pid=other.pid))
        second = read_world(place)
        assert second is not None
        assert second.world_id != first.world_id
        other.kill()
    until(lambda: live_daemon(place) is None)
    until(lambda: not place.plan.exists())
    assert status(place)[0]
    assert not place.ssh_key.exists()


def test_a_start_that_is_stopped_at_once_leaves_no_daemon(directory: Path):
    argv = [sys.executable, "-m", "rehearsal", "--directory", str(directory), "start"]
    starting = subprocess.Popen([*argv, "--without-nodes", "--without-stack"])
    begun = psutil.Process(starting.pid)
    until(lambda: bool(begun.children()))
    daemon = begun.children()[0]
    starting.send_signal(signal.SIGINT)
    assert starting.wait(timeout=DEADLINE_SECONDS) == ExitCode.STOPPED
    assert not daemon.is_running()


def test_without_a_world_there_is_nothing_to_enter_and_nothing_wrong(tmp_path: Path):
    assert status(places(tmp_path))[0]
    argv = [sys.executable, "-m", "rehearsal", "--directory", str(tmp_path), "env"]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (told.returncode, told.stdout) == (2, "")
    assert "python -m rehearsal start" in told.stderr


def test_a_process_id_that_was_given_again_is_not_the_daemon(directory: Path):
    place = places(directory)
    place.pidfile.write_text(f"{os.getpid()} 1.0\n")
    assert live_daemon(place) is None
    place.pidfile.write_text(f"{os.getpid()} {psutil.Process().create_time()}\n")
    assert live_daemon(place) is not None
    place.pidfile.unlink()


def test_a_rehearsal_neither_uses_nor_ends_a_world_that_is_not_its_own(
    directory: Path, monkeypatch: pytest.MonkeyPatch
):
    begin(directory)
    world = read_world(places(directory))
    monkeypatch.setattr(run, "places", lambda: places(directory))
    with pytest.raises(ConfigError, match="a world is up already"):
        run.main()
    assert read_world(places(directory)) == world
    assert live_daemon(places(directory)) is not None
