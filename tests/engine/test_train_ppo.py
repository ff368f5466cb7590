"""Real PPO on an embedded Ray, through the command that a person types."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.exit_codes import ExitCode

WAIT_SECONDS = 180.0
FAST = ("num_runners=1", "evaluate_every=2", "checkpoint_every=2", "seed=3")


class Command:
    """`python -m jobs.submit ppo --local` in a folder of its own; its log is in a file."""

    def __init__(self, folder: Path, *arguments: str, settings: tuple[str, ...]) -> None:
        self._log = folder / f"{len(list(folder.glob('*.log')))}.log"
        environ = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        # A stranger's address must not be joined.
        environ |= {"RAY_ADDRESS": "192.0.2.1:6379", "HOME": str(folder)}
        argv = [sys.executable, "-m", "jobs.submit", "ppo", "--local", "--json", *arguments]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*argv, *(word for setting in (*FAST, *settings) for word in ("--set", setting))],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environ,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, found: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while not found(self.log):
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.2)
        return self.log

    def end(self) -> tuple[int, dict[str, object]]:
        out, _ = self.process.communicate(timeout=WAIT_SECONDS)
        return self.process.returncode, json.loads(out)


def _rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.timeout(500)
def test_a_run_is_stopped_resumed_and_learns(tmp_path: Path) -> None:
    run = tmp_path / ".rayrig" / "runs" / "mine"
    first = Command(tmp_path, "--run-name", "mine", settings=("target_return=null",))
    first.wait_for(lambda log: "iter    6" in log)
    first.process.send_signal(signal.SIGINT)
    code, report = first.end()
    assert code == ExitCode.STOPPED, first.log
    assert report["state"] == "STOPPED"
    assert "no cluster (--local)" in first.log
    assert re.search(r"driver on .*: threads torch 1, OMP 1", first.log)
    assert re.search(r"runner on .*: threads torch 1, OMP 1", first.log)
    stopped_at = _rows(run)[-1]
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["iteration"] == stopped_at["iteration"]
    assert json.loads((run / "cluster.json").read_text())["versions"]["ray"] == "2.60.0"

    second = Command(tmp_path, "--resume", "mine", settings=("target_return=120", "held_evaluations=1"))
    code, report = second.end()
    assert code == ExitCode.SUCCESS, second.log
    assert report["state"] == "SUCCEEDED"
    assert isinstance(report["return"], float)
    assert report["return"] >= 120
    rows = _rows(run)
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1)), "steps go on, none twice"
    assert rows[-1]["env_steps"] > stopped_at["env_steps"]
    assert rows[-1]["return"] > rows[0]["return"] * 1.3, "it learns"
    assert not list(tmp_path.glob(".ray/*")), "no token is left in the home folder"


@pytest.mark.timeout(300)
def test_a_lost_runner_comes_back_and_a_missed_goal_is_a_failure(tmp_path: Path) -> None:
    """J-07, T-13."""
    command = Command(tmp_path, "--run-name", "mine", settings=("max_env_steps=20000", "target_return=501"))
    command.wait_for(lambda log: "iter    2" in log)
    runner = re.search(r"runner on .*, pid (\d+):", command.log)
    assert runner is not None
    os.kill(int(runner[1]), signal.SIGKILL)
    code, report = command.end()
    assert code == ExitCode.FAILURE, command.log
    assert (report["state"], report["run_state"]) == ("FAILED", "target_missed")
    assert isinstance(report["env_steps"], int)
    assert report["env_steps"] >= 20000
