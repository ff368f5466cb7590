"""What each request of the engine means for a type: preview, create, read, update, delete."""

import time
from dataclasses import dataclass

from rehearsal.double.check import DEFAULTS
from rehearsal.double.diff import differences, settled
from rehearsal.double.session import AwsError, Session
from rehearsal.double.table import Table
from rehearsal.double.values import UNKNOWN, Values, is_empty

CONFIRM_SECONDS = 0.3
"""Between the two looks that must both find nothing before a resource counts as gone."""


class HalfMade(Exception):  # noqa: N818 - not a failure to make it, but to finish it
    """The thing exists, but is not as it was asked for; the engine must keep its id.

    Attributes:
        resource_id: its id.
        state: what is known of it.
        reason: what failed.
    """

    def __init__(self, resource_id: str, state: Values, reason: str) -> None:
        super().__init__(reason)
        self.resource_id = resource_id
        self.state = state
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A resource as AWS told it."""

    state: Values
    inputs: Values


def own(inputs: Values) -> Values:
    """Inputs without the bridge's notes."""
    return {key: value for key, value in inputs.items() if key != DEFAULTS}


def foreseen(table: Table, session: Session, inputs: Values) -> Values:
    """What a preview can say of a new resource: its inputs, and unknowns for what AWS will answer."""
    state: Values = dict.fromkeys(table.outputs, UNKNOWN)
    state |= {key: UNKNOWN for key, prop in table.properties.items() if prop.computed and prop.simulated}
    state |= own(inputs)
    if "region" in table.properties and "region" not in inputs:
        state["region"] = session.region
    if table.has_tags:
        state["tagsAll"] = session.default_tags | dict(inputs.get("tags", {}))
    return state


def create(table: Table, session: Session, inputs: Values) -> tuple[str, Values]:
    """Makes the resource; returns its id and state.

    Raises:
        CloudError: it was not made.
        HalfMade: it was made, but what follows failed.
    """
    given = own(inputs)
    resource_id = table.handler.create(session, given)
    try:
        table.handler.settle(session, resource_id, given)
        return resource_id, _state(table, session, resource_id, given)
    except Exception as error:
        raise HalfMade(resource_id, given, str(error)) from error


def _state(table: Table, session: Session, resource_id: str, known: Values) -> Values:
    facts = session.wait(f"{table.what} {resource_id}", lambda: _look(table, session, resource_id, known))
    return settled(table.properties, known, facts)


def _look(table: Table, session: Session, resource_id: str, known: Values) -> Values | None:
    try:
        return table.handler.read(session, resource_id, known)
    except AwsError as failure:
        if failure.not_found:
            return None
        raise


def read(table: Table, session: Session, resource_id: str, *, state: Values, inputs: Values) -> Seen | None:
    """What AWS says now; None only when it says twice that the resource does not exist.

    Args:
        table: the type.
        session: where.
        resource_id: its id; for `pulumi import`, what the person gave.
        state: the last known state; empty on import.
        inputs: the last inputs; empty on import.

    Raises:
        CloudError: AWS cannot be asked; nothing is said about the resource then.
    """
    known = own(state) or own(inputs)
    facts = _look(table, session, resource_id, known)
    if facts is None:
        time.sleep(CONFIRM_SECONDS)
        facts = _look(table, session, resource_id, known)
    if facts is None:
        return None
    found = settled(table.properties, known, facts)
    if not inputs:
        return Seen(state=found, inputs=_imported(table, found))
    return Seen(state=found, inputs=_drifted(table, session, inputs=inputs, state=found))


def _imported(table: Table, state: Values) -> Values:
    inputs: Values = {DEFAULTS: []}
    for key, prop in table.properties.items():
        value = state.get(key, prop.default if prop.local else None)
        if prop.simulated and prop.kind != "block" and not is_empty(value):
            inputs[key] = value
        elif prop.simulated and prop.default is not None:
            inputs[key] = prop.default
    return inputs


def _drifted(table: Table, session: Session, *, inputs: Values, state: Values) -> Values:
    """The inputs, with what AWS holds otherwise put in their place."""
    result = dict(inputs)
    for each in differences(table, olds=state, news=inputs, default_tags=session.default_tags):
        if each.top in table.properties and table.properties[each.top].kind != "block":
            value = state.get(each.top)
            if is_empty(value):
                result.pop(each.top, None)
            else:
                result[each.top] = value
    return result


def update(table: Table, session: Session, resource_id: str, *, olds: Values, news: Values) -> Values:
    """Changes the resource in place; returns its state. Without a difference, finishes what was left half made."""
    given = own(news)
    found = differences(table, olds=olds, news=news, default_tags=session.default_tags)
    if found:
        table.handler.update(session, resource_id, olds, given, frozenset(each.top for each in found))
    else:
        table.handler.settle(session, resource_id, given)
    return _state(table, session, resource_id, _known(table, olds, given))


def previewed_update(table: Table, session: Session, *, olds: Values, news: Values) -> Values:
    """What a preview can say of an update."""
    state = _known(table, olds, own(news))
    if table.has_tags:
        state["tagsAll"] = session.default_tags | dict(news.get("tags", {}))
    return state


def _known(table: Table, olds: Values, given: Values) -> Values:
    """The old state under the new inputs; what was taken out of the program and AWS does not choose is gone."""
    kept = {
        key: value
        for key, value in olds.items()
        if key in given or key not in table.properties or table.properties[key].computed
    }
    return kept | given
