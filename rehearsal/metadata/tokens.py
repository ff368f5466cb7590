"""Session tokens of IMDSv2: each made for one instance, for a time, kept in memory only."""

import secrets
import threading
import time
from collections.abc import Callable

MAX_TTL_SECONDS = 21600
"""The longest life that EC2 gives a token: six hours."""


class Tokens:
    """Tokens by value; those that have run out are forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def issue(self, instance_id: str, ttl_seconds: int) -> str:
        """A new token for an instance.

        Raises:
            ValueError: the life asked for is not between 1 and MAX_TTL_SECONDS.
        """
        if not 1 <= ttl_seconds <= MAX_TTL_SECONDS:
            raise ValueError(f"a token lives between 1 and {MAX_TTL_SECONDS} seconds")
        token = secrets.token_urlsafe(40)
        now = self._clock()
        with self._lock:
            self._tokens = {t: entry for t, entry in self._tokens.items() if entry[1] > now}
            self._tokens[token] = (instance_id, now + ttl_seconds)
        return token

    def valid(self, token: str, instance_id: str) -> bool:
        """Whether the token was made for this instance and still lives."""
        with self._lock:
            owner, ends = self._tokens.get(token, ("", 0.0))
        return owner == instance_id and ends > self._clock()
