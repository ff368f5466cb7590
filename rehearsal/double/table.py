"""What a type's table says: its properties as AWS's provider knows them, and what happens when one changes."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from contract.errors import ConfigError
from rehearsal.double.session import Session
from rehearsal.double.values import Values

Kind = Literal["text", "number", "flag", "texts", "map", "block", "blocks"]
Compare = Literal["plain", "json", "set"]
HOW_TO = "docs/how-to/add-an-aws-type.md"

Wrong = Callable[[Any], str | None]
"""Says what is wrong with a value; None when it is right."""


@dataclass(frozen=True, kw_only=True)
class Property:
    """One property of a type.

    Attributes:
        kind: its form.
        required: whether a program must give it.
        default: what the provider sends when it is not given; None for nothing.
        computed: AWS chooses it when it is not given, so leaving it out changes nothing.
        local: the provider's own, AWS never gives it back.
        compare: how two values are compared.
        wrong: a further look at a known value.
        fields: for blocks, the properties inside.
        simulated: whether the double acts on it; using one that it does not is an error.
    """

    kind: Kind = "text"
    required: bool = False
    default: Any = None
    computed: bool = False
    local: bool = False
    compare: Compare = "plain"
    wrong: Wrong | None = None
    fields: Mapping[str, "Property"] = field(default_factory=dict)
    simulated: bool = True


UNSIMULATED = Property(simulated=False)
TAGS = Property(kind="map")
REGION = Property(computed=True)


def one_of(*allowed: str) -> Wrong:
    """A value out of a list."""

    def wrong(value: Any) -> str | None:  # noqa: ANN401 - any value
        return None if value in allowed else f"expected one of {', '.join(allowed)}, got {value!r}"

    return wrong


def within(low: int, high: int) -> Wrong:
    """A number in a range, ends included."""

    def wrong(value: Any) -> str | None:  # noqa: ANN401 - any value
        return None if low <= value <= high else f"expected a number from {low} to {high}, got {value}"

    return wrong


def matching(pattern: str, what: str) -> Wrong:
    """A text of a form; `what` says which, for the message."""
    compiled = re.compile(pattern)

    def wrong(value: Any) -> str | None:  # noqa: ANN401 - any value
        return None if compiled.fullmatch(value) else f"expected {what}, got {value!r}"

    return wrong


class Handler(Protocol):
    """What a type does at AWS; every method may raise CloudError. Properties are plain values in Pulumi's names."""

    def create(self, session: Session, inputs: Values) -> str:
        """Makes it; returns its id. What follows the making goes to `settle`, so that a failure leaves no orphan."""
        ...

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Brings a thing just made to the state that was asked for, and waits until it is there."""
        ...

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """What AWS says of it now; None when AWS says that it does not exist."""
        ...

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Changes it in place; `changed` holds the top-level properties that differ."""
        ...

    def delete(self, session: Session, resource_id: str, state: Values) -> None:
        """Ends it, and waits until it is gone; one that is gone already is no error."""
        ...


Rule = Callable[[Values], Mapping[str, str]]
"""Looks at all inputs together: property -> what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One type.

    Attributes:
        pulumi_type: Pulumi's type token.
        what: what AWS calls it, for messages.
        properties: inputs, all that the provider's SDK knows.
        outputs: further outputs, which nobody can set.
        handler: what it does at AWS.
        autoname: the property that is filled with the resource's name and seven random hex digits.
        autoname_limit: most characters that AWS takes there.
        rules: looks at all inputs together.
    """

    pulumi_type: str
    what: str
    properties: Mapping[str, Property]
    outputs: tuple[str, ...]
    handler: Handler
    autoname: str | None = None
    autoname_limit: int = 255
    rules: tuple[Rule, ...] = ()

    @property
    def has_tags(self) -> bool:
        """Whether AWS tags it."""
        return "tags" in self.properties


def exactly_one(*names: str) -> Rule:
    """One of the properties must be given, and only one."""

    def rule(inputs: Values) -> Mapping[str, str]:
        given = [name for name in names if name in inputs]
        if len(given) == 1:
            return {}
        if len(names) == 1:
            return {names[0]: f"missing required property {names[0]}"}
        where = given[1] if given else names[0]
        return {where: f"give exactly one of {', '.join(names)}" + (f", not {' and '.join(given)}" if given else "")}

    return rule


def at_most_one(*names: str) -> Rule:
    """The properties exclude each other."""

    def rule(inputs: Values) -> Mapping[str, str]:
        given = [name for name in names if name in inputs]
        return {given[1]: f"conflicts with {given[0]}"} if len(given) > 1 else {}

    return rule


def unknown_type(token: str) -> ConfigError:
    """The error for a type that has no table."""
    return ConfigError(
        "the rehearsal's aws provider does not simulate this type",
        where=token,
        next_step=f"add it as {HOW_TO} shows, or leave it out in rehearsal",
    )
