"""How this program ends when the engine stops it: with one line, since the engine has already told what failed."""

from collections.abc import Callable
from typing import Any

import grpc
import pulumi
from pulumi.runtime import settings

STOPPED = frozenset({grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE})
MESSAGE = "stopped here, because of the error that is told beside it"


def end_quietly() -> None:
    """Makes calls that the engine cuts off end the program with MESSAGE.

    When one resource fails, the engine cancels the calls that wait for others, and the SDK answers some of these with
    a traceback (`Exception: context canceled`; seen with SDK 3.272.0), below which the real error disappears.
    """
    monitor = settings.get_monitor()
    if monitor is not None and not isinstance(monitor, _QuietMonitor):
        settings.SETTINGS.monitor = _QuietMonitor(monitor)


class _QuietMonitor:
    """The engine's monitor, whose cancelled registrations are RunErrors."""

    def __init__(self, monitor: Any) -> None:  # noqa: ANN401 - a gRPC stub, or a test's stand-in
        self._monitor = monitor

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stub has
        found = getattr(self._monitor, name)
        return _quiet(found) if name in {"RegisterResource", "RegisterResourceOutputs"} else found


def _quiet(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - handed through
        try:
            return method(*args, **kwargs)
        except grpc.RpcError as error:
            if error.code() in STOPPED:
                raise pulumi.RunError(MESSAGE) from error
            raise

    return call
