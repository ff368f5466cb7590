"""Waiting with a deadline, in a way that a cancelled operation or a test can cut short."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Pause = Callable[[float], None]
"""Sleeps for so many seconds; may raise instead when the operation was cancelled."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long something is waited for.

    Attributes:
        deadline_seconds: no round starts later than this after the first.
        interval_seconds: pause between two rounds.
        pause: how to sleep.
        clock: monotonic seconds.
    """

    deadline_seconds: float
    interval_seconds: float
    pause: Pause = time.sleep
    clock: Callable[[], float] = time.monotonic

    def rounds(self) -> Iterator[float]:
        """Yields the seconds waited so far: 0 at once, then once per interval, the last time at the deadline."""
        start = self.clock()
        waited = 0.0
        while True:
            yield waited
            if waited >= self.deadline_seconds:
                return
            self.pause(min(self.interval_seconds, self.deadline_seconds - waited))
            waited = self.clock() - start
