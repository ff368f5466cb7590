"""What changed between a resource's old and new inputs, and whether that replaces it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from provider.values import Path, Values, has_unknown, without_nulls, written

LEARNED_KEY = "hostKey"
"""Learned from the instance and tied to its id: it never changes by itself, so it is no change."""


class Change(Enum):
    """What happened to a property."""

    ADD = "add"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One property that differs."""

    path: Path
    change: Change
    replaces: bool

    @property
    def name(self) -> str:
        """The path as Pulumi writes it."""
        return written(self.path)

    @property
    def top(self) -> str:
        """The top-level property that holds it."""
        return str(self.path[0])


def differences(olds: Values, news: Values, *, replaced_by: tuple[str, ...]) -> tuple[Difference, ...]:
    """Compares inputs leaf by leaf; nulls count as missing, an unknown value as changed.

    Args:
        olds: the inputs in the state.
        news: the inputs of the program.
        replaced_by: paths whose change replaces the resource, such as `node.instanceId`.
    """
    keys = [tuple(path.split(".")) for path in replaced_by]
    return tuple(
        Difference(path=path, change=change, replaces=any(_touches(path, key, unknown=unknown) for key in keys))
        for path, change, unknown in _walk(without_nulls(olds), without_nulls(news), ())
    )


def _walk(old: Any, new: Any, at: Path) -> Iterator[tuple[Path, Change, bool]]:  # noqa: ANN401 - any JSON value
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key != LEARNED_KEY:
                yield from _entry(old, new, key, (*at, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            yield from _entry(dict(enumerate(old)), dict(enumerate(new)), index, (*at, index))
    elif old != new:
        yield at, Change.UPDATE, has_unknown(new)


def _entry(old: dict[Any, Any], new: dict[Any, Any], key: str | int, at: Path) -> Iterator[tuple[Path, Change, bool]]:
    if key not in new:
        yield at, Change.DELETE, False
    elif key not in old:
        yield at, Change.ADD, has_unknown(new[key])
    else:
        yield from _walk(old[key], new[key], at)


def _touches(path: Path, key: tuple[str, ...], *, unknown: bool) -> bool:
    """Whether a change at `path` changes `key`: at it or inside it, or around it while it is still unknown."""
    inside = path[: len(key)] == key
    around = key[: len(path)] == path
    return inside or (around and unknown)
