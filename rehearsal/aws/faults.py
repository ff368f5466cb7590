"""Refusals on command: the next calls that match are answered by an AWS error, as a full zone would."""

import threading
from dataclasses import dataclass, field
from typing import Any

from rehearsal.aws.wire import AwsRefusal, Call


@dataclass(kw_only=True)
class Fault:
    """Calls of `action` whose parameters contain `params` are refused, `times` times."""

    action: str
    code: str
    message: str
    status: int = 400
    times: int = 1
    params: dict[str, str] = field(default_factory=dict)


class Faults:
    """The faults that are armed."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []
        self._lock = threading.Lock()

    def arm(self, spec: dict[str, Any]) -> None:
        """Arms one fault from its JSON form; raises TypeError for a field that a Fault lacks."""
        with self._lock:
            self._armed.append(Fault(**spec))

    def clear(self) -> None:
        """Disarms all."""
        with self._lock:
            self._armed.clear()

    def strike(self, call: Call) -> None:
        """Refuses the call where a fault says so.

        Raises:
            AwsRefusal: a fault matched; it is counted down.
        """
        with self._lock:
            for fault in self._armed:
                if fault.action == call.action and fault.params.items() <= call.params.items() and fault.times > 0:
                    fault.times -= 1
                    raise AwsRefusal(fault.code, fault.message, status=fault.status)
