"""Long commands with live progress: nothing runs silently for more than a few seconds."""

import os
import selectors
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from contract.errors import RayrigError

_NOTICE_SECONDS = 5.0
_TAIL_LINES = 12
_LINE_WIDTH = 100


def run_with_progress(
    argv: Sequence[str],
    *,
    label: str,
    say: Callable[[str], None],
    log: Path,
    timeout_seconds: float,
    stop: threading.Event,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs a command; tells its newest line every few seconds and keeps all of its output in a log file.

    Args:
        argv: the command.
        label: what it does, for the progress lines and the error.
        say: takes one progress line.
        log: file that the output is appended to.
        timeout_seconds: the command is killed after this.
        stop: the command is killed soon after somebody sets this.
        environment: the whole environment of the command; None for this process's own.

    Raises:
        RayrigError: it could not start, exited non-zero or ran too long; the last lines are in the message.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    start = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        sink.write(f"\n### {label}\n".encode())
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise RayrigError(f"{label} could not start", why=str(error)) from error
        try:
            _follow(process, label=label, say=say, sink=sink, tail=tail, deadline=start + timeout_seconds, stop=stop)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
            if process.stdout is not None:
                process.stdout.close()
    if process.returncode != 0:
        took = time.monotonic() - start
        cause = f"exit code {process.returncode} after {took:.0f} s"
        if stop.is_set():
            cause = "it was stopped, because another part of the build ended"
        elif took >= timeout_seconds:
            cause = f"still running after {timeout_seconds:.0f} s"
        raise RayrigError(
            f"{label} failed",
            why=f"{cause}; its last lines:\n  " + "\n  ".join(tail),
            next_step=f"read the whole output in {log}, then start again: what is built already is reused",
        )


def _follow(
    process: subprocess.Popen[bytes],
    *,
    label: str,
    say: Callable[[str], None],
    sink: IO[bytes],
    tail: deque[str],
    deadline: float,
    stop: threading.Event,
) -> None:
    """Reads until the command ends, its deadline passes or it is told to stop."""
    if process.stdout is None:
        raise AssertionError("standard output is a pipe")
    start = notice = time.monotonic()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline and not stop.is_set():
            if selector.select(timeout=1.0):
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    break
                sink.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                tail.extend(text for line in lines if (text := line.decode(errors="replace").strip()))
            now = time.monotonic()
            if now - notice >= _NOTICE_SECONDS:
                say(f"{label} ({now - start:.0f} s): {tail[-1][:_LINE_WIDTH] if tail else 'started'}")
                notice = now
    # Its output has ended, so it has too; one that was told to stop, or is late, is killed by the caller.
    if not stop.is_set() and time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
