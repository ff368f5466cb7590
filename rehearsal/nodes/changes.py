"""Whether anything changed in moto, read from the log of its requests: cheaper than asking it four times a second."""

import json
from dataclasses import dataclass
from pathlib import Path

_READING = ("Describe", "Get", "List", "DryRun")


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What happened since the last reading."""

    any: bool
    """Whether an EC2 call may have changed instances, addresses or rules."""
    reboots: frozenset[str]
    """Instances that were asked to reboot, which moto forgets at once."""


class RequestWatch:
    """Follows the log as it grows."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0

    def read(self) -> Changes:
        """The changes in the lines that came since the last call; a line that is half written waits for the next."""
        if not self._log.exists() or self._log.stat().st_size == self._offset:
            return Changes(any=False, reboots=frozenset())
        with self._log.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        calls = [call for line in whole.splitlines() if (call := json.loads(line))["service"] == "ec2"]
        writes = [call for call in calls if not call["action"].startswith(_READING)]
        reboots = (call["params"] for call in writes if call["action"] == "RebootInstances" and not call["error"])
        return Changes(
            any=bool(writes),
            reboots=frozenset(
                value for params in reboots for name, value in params.items() if name.startswith("InstanceId.")
            ),
        )
