"""Notices the first report of an iteration in a job's output."""

import re
import time

FIRST_METRIC = re.compile(r"^iter +\d+ ", re.MULTILINE)
"""How every training's report of an iteration begins."""


class FirstMetric:
    """Watches output that comes in pieces.

    Args:
        started: `time.monotonic()` from which seconds are counted.
    """

    def __init__(self, started: float) -> None:
        self._started = started
        self._line = ""
        self.seconds: float | None = None
        """When the first report came; None before."""

    def take(self, text: str) -> None:
        """Takes the next piece."""
        if self.seconds is not None:
            return
        self._line += text
        if FIRST_METRIC.search(self._line):
            self.seconds = round(time.monotonic() - self._started, 2)
        self._line = self._line.rpartition("\n")[2]
