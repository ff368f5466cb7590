"""PPO as a job: `python -m jobs.train.ppo --run-uri URI --config JSON`.

On a cluster it is what `python -m jobs.submit ppo` submits; with `--local` it brings an embedded Ray of its own.
Exit codes are contract.exit_codes': 0 only when the goal was held, or there is none and the budget was used.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from types import FrameType

from contract.errors import ConfigError, RayrigError
from contract.exit_codes import ExitCode
from jobs.train import session
from jobs.train.config import PPOConfig, parse_config


class StoppedBeforeTrainingError(RayrigError):
    """SIGTERM came before there was anything to save."""

    exit_code = ExitCode.STOPPED


class StopRequest:
    """SIGTERM, turned into an event once there is a loop that looks at it, an error before."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.looping = False

    def install(self) -> None:
        """Takes SIGTERM; call again after ray.init, which takes it too."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.event.set()
        if not self.looping:
            raise StoppedBeforeTrainingError("stopped before training began")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m jobs.train.ppo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run-uri", required=True, help="run directory: s3://… or file://…")
    parser.add_argument("--config", default="{}", metavar="JSON", help="settings that differ from the defaults")
    parser.add_argument("--context", default="{}", metavar="JSON", help="what the submitter knows of the cluster")
    parser.add_argument("--resume", action="store_true", help="go on from the run's latest checkpoint")
    parser.add_argument("--local", action="store_true", help="on an embedded Ray instead of the cluster's")
    return parser.parse_args(argv)


def _json_object(text: str, source: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError("not JSON", where=source, why=str(error)) from error
    if not isinstance(value, dict):
        raise ConfigError("not a JSON object", where=source)
    return value


def run(given: argparse.Namespace, started: float) -> int:
    """Runs one training; returns its exit code, raises RayrigError for what a person can mend."""
    config = parse_config(PPOConfig, _json_object(given.config, "--config"), source="--config")
    context = _json_object(given.context, "--context")
    # Before torch is loaded: it reads them once, and the default of one thread per core slows RLlib 2 to 4 times.
    os.environ |= {name: str(config.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    stop = StopRequest()
    stop.install()
    with session.embedded_settings() if given.local else nullcontext() as folder:
        sys.stdout.write("loading torch and RLlib\n")
        sys.stdout.flush()
        try:
            from jobs.train import environment, loop, recorder  # noqa: PLC0415 - heavy, and after the settings
        except ImportError as error:
            raise ConfigError(
                "the training packages are not installed",
                why=str(error),
                next_step="pip install -e '.[train]', or train on a cluster: pulumi up",
            ) from error
        environment.check(config.env, config.env_config)
        writer = recorder.Recorder(given.run_uri)
        training = loop.Training(config, writer, stop.event, started=started)
        try:
            with session.connected(folder):
                stop.install()
                stop.looping = True
                state = training.run(resume=given.resume, context=context)
        except BaseException as error:
            stopped = isinstance(error, StoppedBeforeTrainingError | KeyboardInterrupt)
            why = str(error) or type(error).__name__
            writer.say(f"failed: {why}")
            writer.finish(training.summary(loop.State.STOPPED if stopped else loop.State.FAILED, why))
            raise
        missed = f"the goal of {config.target_return} was not held within the budget of steps and seconds"
        summary = training.summary(state, missed if state is loop.State.TARGET_MISSED else None)
        writer.say(f"{state.value}: return {summary['return']}, {summary['env_steps']} steps, {summary['seconds']} s")
        writer.finish(summary)
    return {loop.State.SUCCEEDED: ExitCode.SUCCESS, loop.State.STOPPED: ExitCode.STOPPED}.get(state, ExitCode.FAILURE)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    started = time.monotonic()
    try:
        return run(_parse(argv), started)
    except RayrigError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
