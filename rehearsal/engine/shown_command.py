"""Runs a long command so that a person sees it move, with a deadline and without leaving processes behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

TAIL_LINES = 15
TICK_SECONDS = 10.0
END_GRACE_SECONDS = 5.0
ANSWER_SECONDS = 30

Say = Callable[[str], None]


class CommandFailedError(Exception):
    """A command could not be started, failed or ran past its deadline; the text ends with its last lines."""


def say_on_stderr(line: str) -> None:
    """One line of progress, shown at once."""
    print(line, file=sys.stderr, flush=True)


def answer_of(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str | None:
    """What a short command prints; None where it does not run, fails or takes longer than ANSWER_SECONDS."""
    try:
        return subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True, stdin=subprocess.DEVNULL
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def run_shown(
    argv: Sequence[str],
    *,
    label: str,
    timeout_seconds: float,
    say: Say,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Runs `argv`, says every TICK_SECONDS how far it is, and returns what it printed (its last TAIL_LINES lines).

    Raises:
        CommandFailedError: not startable, non-zero exit, or not done after `timeout_seconds`; its processes are ended.
    """
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env) if env is not None else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailedError(f"{argv[0]} cannot be started: {error}") from error
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    count = 0

    def read() -> None:
        nonlocal count
        for line in process.stdout or ():
            if line.strip():
                tail.append(line.rstrip())
                count += 1

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        code = None
        while code is None:
            elapsed = time.monotonic() - started
            left = timeout_seconds - elapsed
            if left <= 0:
                raise CommandFailedError(
                    f"{label}: not done after {timeout_seconds:.0f} s; last lines: {_joined(tail)}"
                )
            try:
                code = process.wait(min(TICK_SECONDS, left))
            except subprocess.TimeoutExpired:
                latest = f", {tail[-1]}" if tail else ""
                say(f"  {label}: {time.monotonic() - started:.0f} s, {count} lines{latest[:100]}")
    finally:
        end_group(process)
        reader.join(END_GRACE_SECONDS)
    if code != 0:
        raise CommandFailedError(f"{label}: exit code {code}; last lines: {_joined(tail)}")
    return "\n".join(tail)


def end_group(process: "subprocess.Popen[str]") -> None:
    """Ends what is left of a command started in a session of its own: SIGTERM, then SIGKILL."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, signum)
        try:
            process.wait(END_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _joined(tail: deque[str]) -> str:
    return " | ".join(tail) or "(it printed nothing)"
