"""How bootstrap tells what it does: progress lines, step results, timed stages, step errors."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from contract.errors import NotReadyError, RayrigError, StepError


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One line of progress: which node, which stage, what happens."""

    node: str
    stage: str
    text: str


Report = Callable[[Progress], None]
"""Called from several threads at once."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step did.

    Attributes:
        changed: whether anything on the node was changed.
        why: what was found or done, for a person.
        seconds: how long it took.
    """

    step: str
    changed: bool
    why: str
    seconds: float


@dataclass(kw_only=True)
class NodeLog:
    """What happened on one node in one run; one thread writes it. `quiet` leaves out steps that changed nothing."""

    node: str
    report: Report
    quiet: bool = False
    results: list[StepResult] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)

    def say(self, stage: str, text: str) -> None:
        """Passes one line on."""
        self.report(Progress(node=self.node, stage=stage, text=text))

    def add(self, step: str, *, changed: bool, why: str, started: float) -> StepResult:
        """Records a finished step; `started` is its `time.monotonic()`."""
        result = StepResult(step=step, changed=changed, why=why, seconds=time.monotonic() - started)
        self.results.append(result)
        self.stage_seconds[step] = round(self.stage_seconds.get(step, 0.0) + result.seconds, 2)
        if changed or not self.quiet:
            self.say(step, f"{why} ({result.seconds:.1f} s)")
        return result

    @contextmanager
    def guarded(self, stage: str) -> Iterator[None]:
        """Names node and stage in whatever of ours fails inside without naming them itself."""
        try:
            yield
        except (StepError, NotReadyError):
            raise
        except RayrigError as error:
            raise step_error(self.node, stage, error.what, why=error.why, next_step=error.next_step) from error

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """As `guarded`, and times a stage that is no step."""
        started = time.monotonic()
        try:
            with self.guarded(stage):
                yield
        finally:
            self.stage_seconds[stage] = round(time.monotonic() - started, 2)

    @property
    def changed(self) -> bool:
        """Whether any step changed the node."""
        return any(result.changed for result in self.results)


def step_error(node: str, step: str, what: str, *, why: str | None, next_step: str | None) -> StepError:
    """An error of one step on one node."""
    return StepError(f"step {step}: {what}", where=node, why=why, next_step=next_step)
