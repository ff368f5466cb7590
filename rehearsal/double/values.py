"""Property values between the engine's wire form and plain Python."""

import json
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import struct_pb2

UNKNOWN_MARK = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How the engine writes a value that is not known yet (sdk/go/common/resource/plugin)."""

Values = dict[str, Any]


class Unknown:
    """A value that the engine does not know yet, in a preview."""

    def __repr__(self) -> str:
        """Short, for messages."""
        return "<unknown>"


UNKNOWN: Final = Unknown()


def from_wire(struct: struct_pb2.Struct) -> Values:
    """Plain values of a message; whole numbers become int, nulls are left out."""
    return {name: _plain(value) for name, value in struct.fields.items() if value.WhichOneof("kind") != "null_value"}


def _plain(value: struct_pb2.Value) -> Any:  # noqa: ANN401 - any JSON value
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return UNKNOWN if value.string_value == UNKNOWN_MARK else value.string_value
    if kind == "number_value":
        return int(value.number_value) if value.number_value.is_integer() else value.number_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_plain(each) for each in value.list_value.values]
    if kind == "struct_value":
        return from_wire(value.struct_value)
    return None


def to_wire(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """A message of plain values; None is left out."""
    struct = struct_pb2.Struct()
    struct.update({name: _wired(value) for name, value in values.items() if value is not None})
    return struct


def _wired(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Unknown):
        return UNKNOWN_MARK
    if isinstance(value, Mapping):
        return {name: _wired(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_wired(each) for each in value]
    return value


def holds_unknown(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a value is unknown, or something in it is."""
    if isinstance(value, Unknown):
        return True
    if isinstance(value, Mapping):
        return any(holds_unknown(each) for each in value.values())
    return isinstance(value, list) and any(holds_unknown(each) for each in value)


def is_empty(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether a value is what Terraform holds for "not given"."""
    return value is None or (not isinstance(value, Unknown) and value in ("", 0, False, [], {}))


def same_json(one: str, other: str) -> bool:
    """Whether two documents say the same, as IAM sees it: order of keys and single values in lists do not count."""
    try:
        return bool(_canonical(json.loads(one)) == _canonical(json.loads(other)))
    except ValueError:
        return one == other


def _canonical(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {name: _canonical(each) for name, each in value.items()}
    if isinstance(value, list):
        items = [_canonical(each) for each in value]
        return items[0] if len(items) == 1 else sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    return value
