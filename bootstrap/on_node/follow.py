"""Reads a pull's state file until it is finished or moved on. Argument: {"state_path", "wait_seconds", "seen"}."""

import json
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.1


def read(path: Path) -> dict:  # type: ignore[type-arg]
    """The state; `missing` while there is none."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {"missing": True, "finished": False}


def main() -> None:
    """Answers as soon as the pull is finished, at the latest after `wait_seconds`."""
    asked = json.loads(sys.argv[1])
    end = time.monotonic() + asked["wait_seconds"]
    state = read(Path(asked["state_path"]))
    while not state["finished"] and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        state = read(Path(asked["state_path"]))
    print(json.dumps(state))


if __name__ == "__main__":
    main()
