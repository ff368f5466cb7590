"""Long commands: what is told while they run, and that none outlives its deadline or its caller."""

import threading
import time
from pathlib import Path

import psutil
import pytest

from contract.errors import RayrigError
from rehearsal.images import commands
from rehearsal.images.commands import run_with_progress


def test_output_is_kept_and_long_silence_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_NOTICE_SECONDS", 0.1)
    said: list[str] = []
    script = "echo one; sleep 1.5; echo two"
    run_with_progress(
        ["sh", "-c", script],
        label="stage",
        say=said.append,
        log=tmp_path / "log",
        timeout_seconds=20,
        stop=threading.Event(),
    )
    assert (tmp_path / "log").read_text() == "\n### stage\none\ntwo\n"
    assert said
    assert said[0].startswith("stage (")
    assert "one" in said[0]


def test_failure_tells_exit_code_last_lines_and_log(tmp_path: Path) -> None:
    with pytest.raises(RayrigError) as caught:
        run_with_progress(
            ["sh", "-c", "echo the cause >&2; exit 7"],
            label="stage",
            say=print,
            log=tmp_path / "log",
            timeout_seconds=20,
            stop=threading.Event(),
        )
    for part in ("stage failed", "exit code 7", "the cause", str(tmp_path / "log")):
        assert part in str(caught.value)


def test_missing_command_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(RayrigError, match="could not start"):
        run_with_progress(
            ["/no/such/command"],
            label="stage",
            say=print,
            log=tmp_path / "log",
            timeout_seconds=20,
            stop=threading.Event(),
        )


@pytest.mark.parametrize("way", ["deadline", "stop"])
def test_command_ends_with_its_deadline_or_when_told(tmp_path: Path, way: str) -> None:
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    if way == "stop":
        timer.start()
    start = time.monotonic()
    pid_file = tmp_path / "pid"
    with pytest.raises(RayrigError, match="still running" if way == "deadline" else "stopped"):
        run_with_progress(
            ["sh", "-c", f"echo $$ >{pid_file}; exec sleep 60"],
            label="stage",
            say=print,
            log=tmp_path / "log",
            timeout_seconds=0.5 if way == "deadline" else 30,
            stop=stop,
        )
    timer.cancel()
    assert time.monotonic() - start < 10
    assert not psutil.pid_exists(int(pid_file.read_text()))
