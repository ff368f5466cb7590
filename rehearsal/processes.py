"""Runs the literal commands of a rehearsal: output shown and kept, Ctrl-C passed on once, nothing left running."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.5
GRACE_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended."""

    exit_code: int
    seconds: float
    output: str


def run_shown(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    timeout_seconds: float,
    show: Callable[[str], None] | None,
) -> Outcome:
    """Runs a command in a process group of its own, shows each line as it comes and keeps all of it in `log`.

    Args:
        argv: the command.
        env: its whole environment.
        log: file that receives stdout and stderr together.
        timeout_seconds: after this the group is ended and the exit code is 124.
        show: called with each line; None shows nothing.

    Raises:
        KeyboardInterrupt: passed on after the command was asked to stop and has.
    """
    started = time.monotonic()
    lines: list[str] = []
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as kept:
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

        def read() -> None:
            assert process.stdout is not None  # noqa: S101 - opened with a pipe above
            for line in process.stdout:
                kept.write(line)
                kept.flush()
                lines.append(line)
                if show:
                    show(line.rstrip("\n"))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            exit_code = process.wait(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            exit_code = 124
        except KeyboardInterrupt:
            _end(process)
            raise
        finally:
            _end_stragglers(process.pid)
        reader.join(timeout=5)
    return Outcome(exit_code=exit_code, seconds=time.monotonic() - started, output="".join(lines))


def _end(process: subprocess.Popen[str]) -> None:
    """One SIGINT, so that pulumi cancels in order; SIGKILL to the group when that takes too long."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        _end_stragglers(process.pid)
        process.wait(timeout=GRACE_SECONDS)


def _end_stragglers(group: int) -> None:
    """Ends what the command left running in its own process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


class MemorySampler:
    """Highest memory in use on this machine above that when sampling began; a thread, ended by `stop`."""

    def __init__(self) -> None:
        self._start_bytes = self._in_use()
        self._peak_bytes = self._start_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    @staticmethod
    def _in_use() -> int:
        memory = psutil.virtual_memory()
        return int(memory.total - memory.available)

    def _sample(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self._peak_bytes = max(self._peak_bytes, self._in_use())

    def stop(self) -> int:
        """Ends sampling and returns the peak above the start, in bytes."""
        self._stopped.set()
        self._thread.join(timeout=5)
        return self._peak_bytes - self._start_bytes


def print_line(line: str) -> None:
    """Shows a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
