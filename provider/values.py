"""Pulumi's property values as plain Python: dicts, lists, strings, numbers, and a marker for what isn't known yet."""

from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format, struct_pb2
from pulumi.runtime.rpc import UNKNOWN

Values = dict[str, Any]
Path = tuple[str | int, ...]

__all__ = [
    "UNKNOWN",
    "Path",
    "Values",
    "from_struct",
    "has_unknown",
    "to_struct",
    "unknown_paths",
    "without_nulls",
    "written",
]


def from_struct(struct: Any) -> Values:  # noqa: ANN401 - a protobuf Struct
    """Reads a protobuf Struct; unknown values stay as the string UNKNOWN."""
    values: Values = json_format.MessageToDict(struct)
    return values


def to_struct(values: Values) -> Any:  # noqa: ANN401 - a protobuf Struct
    """Writes a protobuf Struct."""
    return json_format.ParseDict(values, struct_pb2.Struct())


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value without the keys whose value is null: to Pulumi a null and a missing property are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def unknown_paths(value: Any, at: Path = ()) -> Iterator[Path]:  # noqa: ANN401 - any JSON value
    """Where in a value something is unknown."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from unknown_paths(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_paths(item, (*at, index))
    elif value == UNKNOWN:
        yield at


def has_unknown(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether anything in a value is unknown."""
    return next(unknown_paths(value), None) is not None


def written(path: Path) -> str:
    """A path as Pulumi writes it: `workers[1].instanceId`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
