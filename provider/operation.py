"""One create, read, update or delete under way: its progress lines, and how it is cancelled."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from account.patience import Patience
from contract.errors import RayrigError
from provider.engine_log import EngineLog

CANCEL_GRACE_SECONDS = 2.0
"""What a cancelled operation may take to end by itself before it is answered for."""

T = TypeVar("T")


class CancelledOperationError(RayrigError):
    """The person asked the engine to stop."""


class Cancellation:
    """Told once, by the engine's Cancel call or a signal; every operation of the process hears it."""

    def __init__(self) -> None:
        self._told: Future[None] = Future()
        self._lock = threading.Lock()

    def tell(self) -> None:
        """Cancels; a second call does nothing."""
        with self._lock:
            if not self._told.done():
                self._told.set_result(None)

    @property
    def told(self) -> bool:
        """Whether it was cancelled."""
        return self._told.done()

    def pause(self, seconds: float) -> None:
        """Sleeps; raises CancelledOperationError as soon as it is cancelled."""
        wait([self._told], timeout=seconds)
        self.check()

    def check(self) -> None:
        """Raises CancelledOperationError when it was cancelled."""
        if self.told:
            raise CancelledOperationError("stopped, as asked", next_step="`pulumi up` goes on from here")

    def run(self, work: Callable[[], T]) -> T:
        """Runs blocking work in a thread of its own and answers for it as soon as it is cancelled.

        The thread is a daemon: work that does not heed its pauses and reports ends with the process.

        Raises:
            CancelledOperationError: cancelled, and the work did not end in CANCEL_GRACE_SECONDS.
        """
        result: Future[T] = Future()
        threading.Thread(target=_fill, args=(result, work), daemon=True).start()
        either: list[Future[Any]] = [result, self._told]
        wait(either, return_when=FIRST_COMPLETED)
        if not result.done():
            wait([result], timeout=CANCEL_GRACE_SECONDS)
        if not result.done():
            self.check()
        return result.result()


def _fill(result: "Future[T]", work: Callable[[], T]) -> None:
    try:
        result.set_result(work())
    except BaseException as error:  # noqa: BLE001 - carried to the waiting thread, where it is raised again
        result.set_exception(error)


class Operation:
    """What a resource may ask of the engine while it works.

    Args:
        urn: the resource's URN.
        log: the engine's display.
        cancellation: the process's.
    """

    def __init__(self, *, urn: str, log: EngineLog, cancellation: Cancellation) -> None:
        self.urn = urn
        self.log = log
        self.cancellation = cancellation
        self._shown = ""

    def report(self, message: str) -> None:
        """Shows progress; raises CancelledOperationError when the operation was cancelled."""
        self.cancellation.check()
        if message != self._shown:
            self._shown = message
            self.log.progress(self.urn, message)

    def patience(self, *, deadline_seconds: float, interval_seconds: float) -> Patience:
        """Waiting that a cancellation cuts short."""
        return Patience(
            deadline_seconds=deadline_seconds, interval_seconds=interval_seconds, pause=self.cancellation.pause
        )
