"""Check: what a program gave against a type's table; defaults and names filled in, mistakes told in one line each."""

import difflib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.double.table import HOW_TO, Property, Table
from rehearsal.double.values import UNKNOWN, Values, holds_unknown

DEFAULTS = "__defaults"
"""Where Pulumi's bridge notes which inputs it filled in."""
SUFFIX_DIGITS = 7
"""Random hex digits behind an automatic name, as Pulumi's bridge makes them."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One mistake: where and what."""

    path: str
    reason: str


def check(table: Table, *, news: Values, olds: Values, name: str, seed: bytes) -> tuple[Values, list[Failure]]:
    """The inputs as the provider holds them, and what is wrong with them.

    Args:
        table: the type.
        news: what the program gave.
        olds: the inputs of the last run; empty for a new resource.
        name: the resource's name in Pulumi.
        seed: the engine's random seed, so that preview and update name alike; empty for none.
    """
    inputs = {key: value for key, value in news.items() if key != DEFAULTS and value is not None}
    failures = list(_wrong_values(table, table.properties, inputs, prefix=""))
    for rule in table.rules:
        failures += [Failure(path=path, reason=reason) for path, reason in rule(inputs).items()]
    defaults = []
    for key, prop in table.properties.items():
        if key not in inputs and prop.default is not None:
            inputs[key] = prop.default
            defaults.append(key)
        elif isinstance(inputs.get(key), Mapping):
            inside = {name: each.default for name, each in prop.fields.items() if each.default is not None}
            inputs[key] = inside | dict(inputs[key])
    auto = table.autoname
    if auto is not None and auto not in inputs and f"{auto}Prefix" not in inputs:
        kept = olds.get(auto) if auto in olds.get(DEFAULTS, []) else None
        inputs[auto] = kept or automatic_name(name, seed, limit=table.autoname_limit)
        defaults.append(auto)
    inputs[DEFAULTS] = sorted(defaults)
    return inputs, failures


def automatic_name(name: str, seed: bytes, *, limit: int) -> str:
    """`name-` and seven hex digits, the name cut so that AWS takes it."""
    digits = random.Random(seed or None)  # noqa: S311 - a name, not a secret
    suffix = "".join(digits.choices("0123456789abcdef", k=SUFFIX_DIGITS))
    return f"{name[: limit - SUFFIX_DIGITS - 1]}-{suffix}"


def _wrong_values(
    table: Table, properties: Mapping[str, Property], inputs: Values, *, prefix: str
) -> Iterator[Failure]:
    for key, value in inputs.items():
        path = prefix + key
        prop = properties.get(key)
        if prop is None:
            yield Failure(path=path, reason=_no_such(table, properties, key, prefix=prefix))
        elif not prop.simulated:
            yield Failure(
                path=path,
                reason=f"AWS knows {path} of {table.pulumi_type}, but the rehearsal does not simulate it: "
                f"add it as {HOW_TO} shows, or leave it out in rehearsal",
            )
        else:
            yield from _wrong_value(table, prop, value, path=path)
    for key, prop in properties.items():
        if prop.required and key not in inputs:
            yield Failure(path=prefix + key, reason=f"missing required property {prefix + key}")


def _no_such(table: Table, properties: Mapping[str, Property], key: str, *, prefix: str) -> str:
    if not prefix and key in table.outputs:
        return f"{key} of {table.pulumi_type} is AWS's answer and cannot be set"
    near = difflib.get_close_matches(key, properties, n=1)
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    return f"{table.pulumi_type} has no property {prefix}{key}{hint}"


def _wrong_value(table: Table, prop: Property, value: Any, *, path: str) -> Iterator[Failure]:  # noqa: ANN401
    if value is UNKNOWN:
        return
    if prop.kind == "block" and isinstance(value, Mapping):
        yield from _wrong_values(table, prop.fields, dict(value), prefix=f"{path}.")
    elif not _fits(prop.kind, value):
        yield Failure(path=path, reason=f"expected {EXPECTED[prop.kind]}, got {_shown(value)}")
    elif prop.wrong is not None and not holds_unknown(value):
        reason = prop.wrong(value)
        if reason is not None:
            yield Failure(path=path, reason=reason)


EXPECTED = {
    "text": "a string",
    "number": "a whole number",
    "flag": "true or false",
    "texts": "a list of strings",
    "map": "a map of strings",
    "block": "an object",
}


def _shown(value: Any) -> str:  # noqa: ANN401 - any value
    return repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"


def _fits(kind: str, value: Any) -> bool:  # noqa: ANN401 - any value
    match kind:
        case "text":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int) and not isinstance(value, bool)
        case "flag":
            return isinstance(value, bool)
        case "texts":
            return isinstance(value, list) and all(isinstance(each, str) or each is UNKNOWN for each in value)
        case "map":
            return isinstance(value, Mapping) and all(
                isinstance(each, str) or each is UNKNOWN for each in value.values()
            )
    return False
