"""Waits until cloud-init has finished, and tells its stage and errors. Argument: {"wait_seconds"}."""

import json
import sys
import time
from pathlib import Path

RUN = Path("/run/cloud-init")
POLL_SECONDS = 0.1
LOG = Path("/var/log/cloud-init-output.log")
LOG_LINES = 15


def read_json(path: Path) -> dict:  # type: ignore[type-arg]
    """The file's `v1` object; empty while it is missing or half written."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data.get("v1", {}) if isinstance(data, dict) else {}


def expected() -> bool:
    """Whether cloud-init will run or has run at this boot."""
    if (RUN / "disabled").exists() or Path("/etc/cloud/cloud-init.disabled").exists():
        return False
    return RUN.exists() or Path("/usr/bin/cloud-init").exists()


def boot_state() -> dict:  # type: ignore[type-arg]
    """What cloud-init says of this boot."""
    result = read_json(RUN / "result.json")
    status = read_json(RUN / "status.json")
    warnings = [
        text
        for level in (status.get("recoverable_errors") or {}).values()
        for text in (level if isinstance(level, list) else [])
    ]
    return {
        "expected": expected(),
        "finished": bool(result),
        "stage": status.get("stage"),
        "errors": [str(e) for e in result.get("errors", [])],
        "warnings": [str(w) for w in warnings],
        "log_tail": [],
    }


def main() -> None:
    """Polls until finished or the wait is over, then answers."""
    end = time.monotonic() + float(json.loads(sys.argv[1])["wait_seconds"])
    state = boot_state()
    while state["expected"] and not state["finished"] and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        state = boot_state()
    if state["errors"] and LOG.exists():
        state["log_tail"] = LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
    print(json.dumps(state))


if __name__ == "__main__":
    main()
