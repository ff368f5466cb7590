"""Diff: what AWS has against what the program wants, and the real provider's decision for each difference."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.double.answers import How, decision
from rehearsal.double.check import DEFAULTS
from rehearsal.double.table import Property, Table
from rehearsal.double.values import UNKNOWN, Values, holds_unknown, is_empty, same_json


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One property that differs; `path` is dotted inside blocks."""

    path: str
    how: How
    replaces: bool

    @property
    def top(self) -> str:
        """The top-level property."""
        return self.path.split(".")[0]


def differences(
    table: Table, *, olds: Values, news: Values, default_tags: Mapping[str, str], ignored: frozenset[str] = frozenset()
) -> list[Difference]:
    """Everything that an update or a replacement has to change.

    Args:
        table: the type.
        olds: the state, as AWS last told it.
        news: the checked inputs.
        default_tags: tags that the provider adds to everything.
        ignored: top-level properties that the program told Pulumi to ignore.

    Raises:
        RayrigError: the real provider's decision for a changed property is not known.
    """
    labels = frozenset(key for key, value in news.items() if value is True)
    found = []
    for path, how in _changed(table.properties, olds, news, prefix=""):
        if path.split(".")[0] in ignored:
            continue
        decided = decision(table.pulumi_type, path, how, labels=labels)
        if decided != "none":
            found.append(Difference(path=path, how=how, replaces=decided == "replace"))
    if table.has_tags and not any(each.top == "tags" for each in found) and "tags" not in ignored:
        wanted = dict(default_tags) | news.get("tags", {})
        if not holds_unknown(wanted) and wanted != olds.get("tagsAll", {}):
            found.append(Difference(path="tagsAll", how="change", replaces=False))
    return found


def _changed(
    properties: Mapping[str, Property], olds: Mapping[str, Any], news: Mapping[str, Any], *, prefix: str
) -> Iterator[tuple[str, How]]:
    for key, prop in properties.items():
        if not prop.simulated:
            continue
        old, new = olds.get(key), news.get(key)
        path = prefix + key
        if prop.kind == "block" and isinstance(new, Mapping):
            yield from _changed(prop.fields, old or {}, new, prefix=f"{path}.")
        elif prop.kind == "block":
            continue
        elif new is None and not is_empty(old):
            yield path, "remove"
        elif new is not None and not same(prop, old, new):
            yield path, "add" if old is None else "change"


def same(prop: Property, old: Any, new: Any) -> bool:  # noqa: ANN401 - any values
    """Whether two values of a property mean the same to AWS; an unknown one is never the same."""
    if holds_unknown(new):
        return old is UNKNOWN
    if is_empty(old) and is_empty(new):
        return True
    if prop.compare == "json" and isinstance(old, str) and isinstance(new, str):
        return same_json(old, new)
    if prop.compare == "set" and isinstance(old, list) and isinstance(new, list):
        return sorted(map(str, old)) == sorted(map(str, new))
    return bool(old == new)


def must_delete_first(table: Table, *, olds: Values, news: Values) -> bool:
    """Whether a replacement would clash with the old one's name: the person chose it and it stays."""
    name = table.autoname
    return name is not None and name in news and name not in news.get(DEFAULTS, []) and olds.get(name) == news[name]


def settled(properties: Mapping[str, Property], known: Mapping[str, Any], facts: Mapping[str, Any]) -> Values:
    """What AWS says, in the words the state already used where both mean the same; the provider's own kept.

    Args:
        properties: the type's (or block's) properties.
        known: the inputs or state up to now.
        facts: what AWS says now.
    """
    result = dict(facts)
    for key, prop in properties.items():
        if prop.local and known.get(key) is not None:
            result[key] = known[key]
        elif prop.kind == "block" and isinstance(facts.get(key), Mapping):
            result[key] = settled(prop.fields, known.get(key) or {}, facts[key])
        elif known.get(key) is not None and facts.get(key) is not None and same(prop, facts[key], known[key]):
            result[key] = known[key]
    return result
