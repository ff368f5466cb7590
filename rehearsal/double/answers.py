"""The real provider's answers: per property, whether a change updates in place or replaces (replaces/*.json)."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from contract.errors import RayrigError

FOLDER = Path(__file__).parent / "replaces"
Decision = Literal["update", "replace", "none"]
How = Literal["change", "add", "remove"]

NEWER: Mapping[str, Mapping[How, Decision]] = {
    "region": {"change": "replace", "add": "replace", "remove": "none"},
    "forceDestroy": {"change": "update", "add": "update", "remove": "update"},
}
"""Properties newer than the provider that was asked; source: documentation of the Terraform AWS provider 6 (region is
in its guide to enhanced region support; force_destroy of aws_instance only speaks to the provider's delete)."""


def file_of(token: str) -> Path:
    """Where the answers of one type lie: `aws:ec2/vpc:Vpc` in `ec2-vpc.json`."""
    return FOLDER / (token.split(":")[1].replace("/", "-") + ".json")


@functools.cache
def answers(token: str) -> Mapping[str, Mapping[str, Any]]:
    """The answers of one type by property, dotted inside blocks; raises FileNotFoundError without a file."""
    found: dict[str, Any] = json.loads(file_of(token).read_text(encoding="utf-8"))
    properties: dict[str, Mapping[str, Any]] = found["properties"]
    return properties


def decision(token: str, path: str, how: How, *, labels: frozenset[str]) -> Decision:
    """What the real provider does when a property changes.

    Args:
        token: the type.
        path: the property, dotted inside blocks.
        how: whether its value changed, or it was added or removed.
        labels: flags that are on; an answer labelled with one of them comes first (userDataReplaceOnChange).

    Raises:
        RayrigError: the provider was never asked, or could not say.
    """
    table = answers(token)
    entry = next((table[f"{path} ({label})"] for label in labels if f"{path} ({label})" in table), table.get(path))
    if path in NEWER and (entry is None or entry["answer"] == "unknown"):
        return NEWER[path][how]
    if entry is None or entry["answer"] == "unknown":
        raise RayrigError(
            f"the rehearsal does not know whether AWS's provider updates or replaces when {path} changes",
            where=token,
            next_step="ask the real provider (python -m rehearsal.double.make_replaces), or keep the property as it is",
        )
    found: Decision = entry.get(how, entry["answer"])
    return found
