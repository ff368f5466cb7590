"""The return of the last episodes, from what RLlib reports per iteration."""

import math
from collections import deque

EPISODES = 100
"""Episodes that a return is averaged over."""


class ReturnWindow:
    """Mean return of the last 100 or so finished training episodes.

    RLlib's `episode_return_mean` covers only the episodes that happened to end in that iteration, one perhaps, and is
    NaN when none did; so each report is weighted by its number of episodes and kept until newer ones make 100.
    """

    def __init__(self) -> None:
        self._reports: deque[tuple[float, int]] = deque()

    def add(self, mean: float | None, episodes: int) -> None:
        """Takes one iteration's report; one without finished episodes changes nothing."""
        if mean is None or math.isnan(mean) or episodes <= 0:
            return
        self._reports.append((float(mean), int(episodes)))
        while self.episodes - self._reports[0][1] >= EPISODES:
            self._reports.popleft()

    @property
    def episodes(self) -> int:
        """How many episodes the mean covers."""
        return sum(count for _, count in self._reports)

    @property
    def mean(self) -> float | None:
        """The weighted mean; None before the first episode has ended."""
        if not self._reports:
            return None
        return sum(mean * count for mean, count in self._reports) / self.episodes

    def to_state(self) -> list[tuple[float, int]]:
        """For the checkpoint."""
        return list(self._reports)

    @classmethod
    def from_state(cls, state: list[tuple[float, int]]) -> "ReturnWindow":
        """What `to_state` gave."""
        window = cls()
        for mean, episodes in state:
            window.add(mean, episodes)
        return window
