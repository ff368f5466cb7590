"""Training on this machine: the same module as on a cluster, in a process of its own with an embedded Ray."""

import contextlib
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contract.errors import ConfigError, JobError
from contract.exit_codes import ExitCode
from jobs.catalog import Entry
from jobs.first_metric import FirstMetric

STOP_SECONDS = 30.0
"""From SIGTERM to SIGKILL: an iteration, a checkpoint and Ray's own end."""
NEEDED = ("ray", "torch", "gymnasium")
POLL_SECONDS = 1.0
SIGNAL_BASE = 128


@dataclass(frozen=True, kw_only=True)
class LocalOutcome:
    """How the process ended."""

    exit_code: int
    first_metric_seconds: float | None
    detached: bool = False


def check_installed() -> None:
    """Raises ConfigError when this Python lacks what training needs."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"training on this machine needs {', '.join(missing)}",
            next_step="pip install -e '.[train]', or train on a cluster: pulumi up",
        )


def run_embedded(
    entry: Entry,
    *,
    run_uri: str,
    config: Mapping[str, object],
    resume: bool,
    write: Callable[[str], None],
    total_seconds: float | None,
    started: float,
) -> LocalOutcome:
    """Runs a catalog entry here to its end; Ctrl-C stops it with a checkpoint.

    Args:
        entry: what to run.
        run_uri: file:// URI of the run directory.
        config: its settings.
        resume: go on from the run's latest checkpoint.
        write: takes its output.
        total_seconds: how long it may take in all; it is stopped then.
        started: `time.monotonic()` of the command's start.

    Raises:
        ConfigError: the training packages are not installed.
        JobError: it did not end within `total_seconds`.
    """
    check_installed()
    argv = [sys.executable, "-u", "-m", entry.module, "--local", "--run-uri", run_uri, "--config", json.dumps(config)]
    first = FirstMetric(started)
    process = subprocess.Popen(
        [*argv, *(["--resume"] if resume else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Ctrl-C is ours: we pass it on as SIGTERM, once.
        start_new_session=True,
    )
    try:
        _pump(process, first, write, deadline=None if total_seconds is None else started + total_seconds)
    except KeyboardInterrupt:
        write("stopping, with a checkpoint (Ctrl-C again ends it at once)\n")
        _end(process, first, write)
        return LocalOutcome(exit_code=ExitCode.STOPPED, first_metric_seconds=first.seconds)
    except TimeoutError as error:
        _end(process, first, write)
        raise JobError(f"the job did not end within {total_seconds:.0f} s and has been stopped") from error
    finally:
        _kill(process)
    code = process.wait(STOP_SECONDS)
    return LocalOutcome(exit_code=code if code >= 0 else SIGNAL_BASE - code, first_metric_seconds=first.seconds)


def _pump(
    process: subprocess.Popen[bytes], first: FirstMetric, write: Callable[[str], None], *, deadline: float | None
) -> None:
    """Passes output on until it ends; raises TimeoutError at the deadline."""
    if process.stdout is None:
        return
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
            if selector.select(POLL_SECONDS):
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    return
                text = piece.decode(errors="replace")
                first.take(text)
                write(text)
            elif process.poll() is not None:
                # Something it started still holds the pipe.
                return


def _end(process: subprocess.Popen[bytes], first: FirstMetric, write: Callable[[str], None]) -> None:
    process.terminate()
    with contextlib.suppress(KeyboardInterrupt, TimeoutError):
        _pump(process, first, write, deadline=time.monotonic() + STOP_SECONDS)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends what is left of the session that we started."""
    if process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_SECONDS)
