"""Every request that reached the rehearsal's AWS, one JSON line each: what tests assert on where moto forgets."""

import json
import threading
import time
from pathlib import Path

from rehearsal.aws.wire import Call

UNLOGGED = frozenset({"Signature", "X-Amz-Signature", "X-Amz-Security-Token", "X-Amz-Credential"})


class RequestLog:
    """Appends to a file that only its owner can read; None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)

    def add(self, call: Call, *, status: int, error_code: str | None) -> None:
        """Notes one request and how it was answered."""
        if self.path is None:
            return
        params = {name: value for name, value in call.params.items() if name not in UNLOGGED}
        entry = {
            "time": round(time.time(), 3),
            "service": call.service,
            "region": call.region,
            "action": call.action,
            "params": params | call.body,
            "status": status,
            "error": error_code,
        }
        line = json.dumps(entry, default=str) + "\n"
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line)


def read_requests(path: Path) -> list[dict[str, object]]:
    """The requests logged so far, oldest first."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
