"""Spot notices, given on command: what a node finds at `spot/instance-action`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from rehearsal.world.places import write_private

NOTICE_SECONDS = 120
"""How long before the interruption EC2 gives notice."""


def give_spot_notice(
    notices: Path, instance_id: str, *, action: Literal["terminate", "stop", "hibernate"] = "terminate"
) -> None:
    """Announces an interruption of an instance two minutes from now; it does not carry it out.

    Args:
        notices: the world's folder of notices (`Places.notices`).
        instance_id: whom it concerns.
        action: what EC2 would do then.
    """
    moment = datetime.now(UTC) + timedelta(seconds=NOTICE_SECONDS)
    notice = {"action": action, "time": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}
    write_private(notices / f"{instance_id}.json", json.dumps(notice))


def read_spot_notice(notices: Path, instance_id: str) -> str | None:
    """The notice as JSON text; None as long as nobody gave one."""
    try:
        return (notices / f"{instance_id}.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
