"""The daemon's status on disk: what its parts do, and which of them crashed."""

import json
import logging
import threading
from collections.abc import Callable, Mapping

from rehearsal.world.places import Places, write_private

log = logging.getLogger("rehearsal.world")


class Board:
    """Writes `status.json` when something changes; a thread's crash is something too."""

    def __init__(self, place: Places) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._crashes: dict[str, str] = {}
        self._nodes: Callable[[], Mapping[str, str]] = dict
        self._problems: Callable[[], Mapping[str, str]] = dict

    def watch(self, *, nodes: Callable[[], Mapping[str, str]], problems: Callable[[], Mapping[str, str]]) -> None:
        """Takes the reconciler's states and problems in; called once."""
        self._nodes, self._problems = nodes, problems
        self.write()

    def catch_crashes(self) -> None:
        """From now on a thread that dies of an error is logged and shown."""
        threading.excepthook = self._crashed

    def write(self) -> None:
        """Rewrites the status."""
        with self._lock:
            document = {"nodes": self._nodes(), "problems": {**self._problems(), **self._crashes}}
            write_private(self._place.status, json.dumps(document, indent=2) + "\n")

    def _crashed(self, args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "a thread"
        error = args.exc_value or args.exc_type()
        log.error("%s crashed", name, exc_info=error)
        self._crashes[name] = f"crashed: {type(error).__name__}: {error}"
        self.write()
