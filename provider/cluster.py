"""`rayrig:index:Cluster`: made first, deleted last; holds the id, the deadline and the receipt."""

import re
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from account.clients import client
from account.instances import InstanceFacts, tagged_instances
from account.receipt import make_receipt, receipt_table, require_nothing_left, save_receipt
from contract.inventory import EndpointKind
from contract.names import CLUSTER_ID_PATTERN, TAG_CLUSTER, TAG_DEADLINE
from contract.resources import ClusterInputs, ClusterOutputs, Home
from provider.operation import Operation
from provider.places import receipts_folder
from provider.resource import Created, Resource
from provider.values import UNKNOWN, Values

STACK_CHARACTERS = 24
"""Of the stack's name in the cluster id: leaves room for what names made from the id append."""
SUFFIX_BYTES = 3

SETTLE = {EndpointKind.AWS: (90.0, 2.0), EndpointKind.REHEARSAL: (5.0, 0.3)}
"""Seconds that leftovers may take to go, and between two looks; the rehearsal is consistent at once."""


class Cluster(Resource[ClusterInputs, ClusterOutputs]):
    """Makes no AWS resource itself: it names the cluster, keeps its deadline and closes its account."""

    pulumi_type: ClassVar = "rayrig:index:Cluster"
    replaced_by: ClassVar = ("home",)
    inputs = ClusterInputs
    outputs = ClusterOutputs

    def create(self, inputs: ClusterInputs, operation: Operation) -> Created[ClusterOutputs]:
        """Draws an id and sets the deadline."""
        del operation
        now = _now()
        cluster_id = new_cluster_id(inputs.stack)
        outputs = ClusterOutputs(
            **_fields(inputs),
            cluster_id=cluster_id,
            created_at=now,
            deadline=now + timedelta(hours=inputs.ttl_hours),
        )
        return Created(id=cluster_id, outputs=outputs)

    def read(self, state: ClusterOutputs, operation: Operation) -> ClusterOutputs:
        """Takes the deadline from AWS while instances live; says whether the cluster has expired."""
        del operation
        lives = [facts for facts in _instances(state.home, state.cluster_id) if facts.lives]
        if lives:
            return state.model_copy(update={"deadline": _latest(lives, state.deadline), "expired": False})
        return state.model_copy(update={"expired": state.deadline <= _now()})

    def update(self, state: ClusterOutputs, inputs: ClusterInputs, operation: Operation) -> ClusterOutputs:
        """A longer ttl moves the deadline, a shorter one doesn't; an expired cluster gets a new deadline."""
        if state.expired:
            deadline = _now() + timedelta(hours=inputs.ttl_hours)
        else:
            deadline = _lengthened(state, inputs)
            if inputs.ttl_hours < state.ttl_hours:
                operation.log.warning(
                    operation.urn,
                    f"ttlHours is {inputs.ttl_hours:g} now, but the deadline stays {deadline.isoformat()}: no `up` "
                    "shortens it. To end the cluster earlier: pulumi destroy",
                )
        return ClusterOutputs(
            **_fields(inputs), cluster_id=state.cluster_id, created_at=state.created_at, deadline=deadline
        )

    def delete(self, values: Values, operation: Operation) -> None:
        """The receipt: raises LeftoversError when anything still bears the cluster's tag; deletes nothing."""
        state = self.parse_state(values)
        deadline_seconds, interval_seconds = SETTLE[state.home.endpoint.kind]
        operation.report("looking for leftovers")
        receipt = make_receipt(
            state,
            now=_now,
            patience=operation.patience(deadline_seconds=deadline_seconds, interval_seconds=interval_seconds),
            report=operation.report,
        )
        places = save_receipt(receipt, folder=receipts_folder())
        saved = "\n".join(f"  saved  {place}" for place in places)
        operation.log.info(operation.urn, f"{receipt_table(receipt)}\n{saved}\n")
        require_nothing_left(receipt)

    def due(self, state: Values) -> str | None:
        """An expired cluster is renewed by the next `up`."""
        return "expired" if state.get("expired") else super().due(state)

    def preview_update(self, state: Values, inputs: Values) -> Values:
        """The deadline is known unless the cluster is renewed."""
        outputs = super().preview_update(state, inputs)
        if state.get("expired"):
            return {**outputs, "expired": False, "deadline": UNKNOWN}
        hours = inputs.get("ttlHours")
        if not isinstance(hours, int | float):
            return {**outputs, "deadline": UNKNOWN}
        before = self.parse_state(state)
        after = before.model_copy(update={"deadline": _lengthened(before, self.parse_inputs(inputs))})
        return {**outputs, "deadline": after.to_wire()["deadline"]}


def new_cluster_id(stack: str) -> str:
    """`rr-STACK-6 hex digits`, the stack's name cut to what an id may hold."""
    name = re.sub(r"[^a-z0-9]+", "-", stack.lower()).strip("-")[:STACK_CHARACTERS].strip("-")
    cluster_id = "-".join(part for part in ("rr", name, secrets.token_hex(SUFFIX_BYTES)) if part)
    if not CLUSTER_ID_PATTERN.match(cluster_id):
        raise AssertionError(f"{cluster_id!r} is no cluster id")
    return cluster_id


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _lengthened(state: ClusterOutputs, inputs: ClusterInputs) -> datetime:
    return max(state.deadline, state.created_at + timedelta(hours=inputs.ttl_hours))


def _instances(home: Home, cluster_id: str) -> tuple[InstanceFacts, ...]:
    ec2 = client("ec2", region=home.region, endpoint=home.endpoint)
    return tagged_instances(ec2, TAG_CLUSTER, cluster_id)


def _latest(lives: list[InstanceFacts], known: datetime) -> datetime:
    """The latest deadline that a live instance bears; the known one where none bears a readable one."""
    found = []
    for facts in lives:
        try:
            deadline = datetime.fromisoformat(facts.tags.get(TAG_DEADLINE, ""))
        except ValueError:
            continue
        if deadline.tzinfo is not None:
            found.append(deadline.astimezone(UTC))
    return max(found, default=known)


def _fields(inputs: ClusterInputs) -> dict[str, Any]:
    return {name: getattr(inputs, name) for name in ClusterInputs.model_fields}
