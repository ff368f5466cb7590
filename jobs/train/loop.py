"""The training loop: iterate, evaluate, record, checkpoint, and know when it is over."""

import importlib
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from contract.errors import JobError
from images.verify import versions
from jobs.train import algorithm as rllib
from jobs.train.config import PPOConfig
from jobs.train.evaluate import Evaluation, evaluate
from jobs.train.placement import RunnerPlan, plan_runners
from jobs.train.recorder import CheckpointRecord, Recorder
from jobs.train.returns import ReturnWindow


class State(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    TARGET_MISSED = "target_missed"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(kw_only=True)
class Progress:
    """Where a run is; what a resumed run starts from."""

    iteration: int = 0
    env_steps: int = 0
    seconds_before: float = 0.0
    """Training seconds of earlier processes of this run."""
    window: ReturnWindow = field(default_factory=ReturnWindow)
    evaluation: float | None = None
    """Mean return of the latest held evaluation."""
    evaluations: int = 0
    best: float | None = None
    held: int = 0
    """Evaluations in a row that reached the goal."""
    first_metric_seconds: float | None = None
    """From this process's start to its first iteration's end."""

    @property
    def reported_return(self) -> float | None:
        """The latest held evaluation, else the training return."""
        return self.evaluation if self.evaluation is not None else self.window.mean

    @classmethod
    def from_record(cls, record: CheckpointRecord) -> "Progress":
        """What a checkpoint's record holds."""
        return cls(
            iteration=record.iteration,
            env_steps=record.env_steps,
            seconds_before=record.seconds,
            window=ReturnWindow.from_state(record.window),
            evaluation=record.evaluation,
            evaluations=record.evaluations,
            best=record.best,
            held=record.held,
        )


class Training:
    """One run on the connected Ray.

    Args:
        config: the settings.
        recorder: writer of the run directory.
        stop: set from outside (SIGTERM): the run ends after the iteration at hand, with a checkpoint.
        started: `time.monotonic()` of the process's start.
    """

    def __init__(self, config: PPOConfig, recorder: Recorder, stop: threading.Event, *, started: float) -> None:
        self.config = config
        self.recorder = recorder
        self.stop = stop
        self.started = started
        self.loop_started = started
        self.progress = Progress()
        self._sampled_at = started
        self._ended: float | None = None

    def run(self, *, resume: bool, context: Mapping[str, object]) -> State:
        """Trains to the end.

        Args:
            resume: go on from the run directory's latest checkpoint, if it has one.
            context: what the submitter knows of the cluster, for cluster.json.

        Raises:
            JobError: storage or the runners failed.
            ConfigError: the settings do not fit the cluster.
        """
        config, say = self.config, self.recorder.say
        nodes = rllib.alive_nodes()
        plan = plan_runners(nodes, num_runners=config.num_runners, num_envs=config.num_envs)
        resumed = self.recorder.resume() if resume else None
        say(f"plan: {plan}; learner {'on a GPU' if config.learner_gpus else 'in the driver'}")
        self.recorder.start(config.model_dump(mode="json"), self._cluster_facts(plan, context))
        driver = rllib.set_threads(config.threads)
        trainer = rllib.build(config, plan)
        try:
            runners = rllib.pin_runner_threads(trainer, config.threads)
            for role, process in (("driver", driver), *(("runner", runner) for runner in runners)):
                threads = f"torch {process.torch_threads}, OMP {process.omp or 'unset'}"
                say(f"{role} on {process.node}, pid {process.pid}: threads {threads}")
            if resumed is not None:
                directory, record = resumed
                trainer.restore_from_path(str(directory))
                self.progress = Progress.from_record(record)
                say(f"resumed at iteration {record.iteration}, {record.env_steps} steps")
            rllib.push_weights(trainer)
            return self._loop(trainer)
        finally:
            trainer.stop()

    def summary(self, state: State, error: str | None = None) -> dict[str, object]:
        """What summary.json holds."""
        progress = self.progress
        seconds = self._seconds()
        return {
            "state": state.value,
            "return": progress.reported_return,
            "training_return": progress.window.mean,
            "best_return": progress.best,
            "target_return": self.config.target_return,
            "held_evaluations": progress.held,
            "env_steps": progress.env_steps,
            "iterations": progress.iteration,
            "seconds": round(seconds, 3),
            "start_seconds": round(self.loop_started - self.started, 3),
            "first_metric_seconds": progress.first_metric_seconds,
            "steps_per_second": round(progress.env_steps / seconds, 1) if seconds > 0 else None,
            "run_uri": self.recorder.uri,
            "error": error,
        }

    def _seconds(self) -> float:
        """Training seconds, start-up apart."""
        until = self._ended if self._ended is not None else time.monotonic()
        running = until - self.loop_started if self.loop_started != self.started else 0.0
        return self.progress.seconds_before + running

    def _loop(self, trainer: Any) -> State:  # noqa: ANN401 - RLlib is untyped here
        config, progress = self.config, self.progress
        self.loop_started = self._sampled_at = time.monotonic()
        while True:
            if self.stop.is_set():
                return self._end(trainer, State.STOPPED)
            iteration_started = time.monotonic()
            result = rllib.read_result(trainer, trainer.train())
            if result.env_steps == 0:
                self._wait_for_runners(result)
                continue
            self._sampled_at = time.monotonic()
            progress.iteration += 1
            progress.env_steps += result.env_steps
            progress.window.add(result.return_mean, result.episodes)
            found = self._evaluate(trainer) if progress.iteration % config.evaluate_every == 0 else None
            self._report(result, found, time.monotonic() - iteration_started)
            if config.target_return is not None and progress.held >= config.held_evaluations:
                return self._end(trainer, State.SUCCEEDED, best=progress.evaluation == progress.best)
            if progress.env_steps >= config.max_env_steps or self._seconds() >= config.max_seconds:
                if config.target_return is None:
                    return self._end(trainer, State.SUCCEEDED)
                return self._end(trainer, State.TARGET_MISSED)
            best = found is not None and found.mean == progress.best
            if (best or progress.iteration % config.checkpoint_every == 0) and not self.recorder.busy:
                self._checkpoint(trainer, best=best)

    def _wait_for_runners(self, result: rllib.IterationResult) -> None:
        """RLlib's iterations go on with no samples while all runners are gone: wait, but not for ever."""
        silent = time.monotonic() - self._sampled_at
        if silent >= self.config.no_runner_timeout_seconds:
            raise JobError(
                f"no samples for {silent:.0f} s",
                why=f"{result.healthy_runners} environment runners are alive",
                next_step="`pulumi up` brings lost instances back",
            )
        self.recorder.say(f"waiting: no samples for {silent:.0f} s, {result.healthy_runners} runners alive")
        self.stop.wait(1.0)

    def _evaluate(self, trainer: Any) -> Evaluation:  # noqa: ANN401 - RLlib is untyped here
        config, progress = self.config, self.progress
        found = evaluate(
            trainer.get_module(),
            env=config.env,
            env_config=config.env_config,
            episodes=config.evaluation_episodes,
            seed=config.seed,
            index=progress.evaluations,
            greedy=config.evaluation_greedy,
        )
        progress.evaluations += 1
        progress.evaluation = found.mean
        progress.best = found.mean if progress.best is None else max(progress.best, found.mean)
        if config.target_return is not None:
            progress.held = progress.held + 1 if found.mean >= config.target_return else 0
        return found

    def _report(self, result: rllib.IterationResult, found: Evaluation | None, iteration_seconds: float) -> None:
        progress, window = self.progress, self.progress.window
        if progress.first_metric_seconds is None:
            progress.first_metric_seconds = round(time.monotonic() - self.started, 3)
        rate = result.env_steps / iteration_seconds
        self.recorder.metric(
            {
                "iteration": progress.iteration,
                "env_steps": progress.env_steps,
                "seconds": round(self._seconds(), 3),
                "time": round(time.time(), 3),
                "return": _rounded(window.mean),
                "return_episodes": window.episodes,
                "evaluation": found and _rounded(found.mean),
                "evaluation_lowest": found and found.lowest,
                "held": progress.held,
                "steps_per_second": round(rate, 1),
                "healthy_runners": result.healthy_runners,
                **{key: _rounded(value) for key, value in result.learner.items()},
            }
        )
        mean = "-" if window.mean is None else f"{window.mean:.1f}"
        line = f"iter {progress.iteration:>4}  steps {progress.env_steps:>8}  return {mean:>7}"
        if found is not None:
            line += f"  eval {found.mean:6.1f} ({found.episodes} episodes, lowest {found.lowest:.0f})"
            if progress.held:
                line += f", goal held {progress.held}/{self.config.held_evaluations}"
        self.recorder.say(f"{line}  {rate:6.0f} steps/s  {self._seconds():6.1f} s")

    def _checkpoint(self, trainer: Any, *, best: bool) -> None:  # noqa: ANN401 - RLlib is untyped here
        progress = self.progress
        directory = self.recorder.new_folder()
        trainer.save_to_path(str(directory))
        record = CheckpointRecord(
            name=f"iteration-{progress.iteration:06d}",
            iteration=progress.iteration,
            env_steps=progress.env_steps,
            seconds=self._seconds(),
            evaluation=progress.evaluation,
            evaluations=progress.evaluations,
            best=progress.best,
            held=progress.held,
            window=progress.window.to_state(),
        )
        self.recorder.checkpoint(directory, record, best=best)

    def _end(self, trainer: Any, state: State, *, best: bool = False) -> State:  # noqa: ANN401 - RLlib is untyped here
        self._ended = time.monotonic()
        if self.progress.iteration:
            self._checkpoint(trainer, best=best)
        return state

    def _cluster_facts(self, plan: RunnerPlan, context: Mapping[str, object]) -> dict[str, object]:
        ray = importlib.import_module("ray")
        return {
            "versions": versions(),
            "nodes": [
                {"address": node["NodeManagerAddress"], "resources": node["Resources"]}
                for node in ray.nodes()
                if node["Alive"]
            ],
            "runners": plan.runners,
            "envs_per_runner": plan.envs_per_runner,
            "seed": self.config.seed,
            **context,
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 5)
