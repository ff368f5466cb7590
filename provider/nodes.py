"""`rayrig:index:Node`, `:RayHead` and `:RayFleet`: bootstrap's libraries, called by the engine.

Bootstrap is imported inside create and update only; reads ask EC2, not the machines; deletes do nothing, since the
instances go and everything on them with them.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from account.clients import client
from account.host_keys import Publisher, wait_for_host_key
from account.instances import is_gone
from contract.inventory import EndpointKind
from contract.resources import (
    Home,
    NodeInputs,
    NodeOutputs,
    RayFleetInputs,
    RayFleetOutputs,
    RayHeadInputs,
    RayHeadOutputs,
)
from provider.operation import Operation
from provider.resource import Created, Resource
from provider.values import Values

HOST_KEY_SECONDS = {EndpointKind.AWS: 420.0, EndpointKind.REHEARSAL: 60.0}
"""From the launch to a published host key: a GPU instance boots in 1-2 minutes on AWS, a container node in seconds."""
HOST_KEY_LOOK_SECONDS = {EndpointKind.AWS: 1.0, EndpointKind.REHEARSAL: 0.25}
GONE_SECONDS = 1.5
"""Over which an ended instance is asked for twice."""


class Node(Resource[NodeInputs, NodeOutputs]):
    """One machine: booted, its host key known, Docker and the image ready."""

    pulumi_type: ClassVar = "rayrig:index:Node"
    replaced_by: ClassVar = ("home", "clusterId", "node.instanceId")
    relearned: ClassVar = ("versions", "stageSeconds")
    resumable: ClassVar = True
    inputs = NodeInputs
    outputs = NodeOutputs

    def create(self, inputs: NodeInputs, operation: Operation) -> Created[NodeOutputs]:
        """Waits for the host key that only this instance can publish, then prepares the node."""
        from bootstrap.converge import prepare_node  # noqa: PLC0415 - see the module's docstring

        host_key = _host_key(inputs, operation)
        outputs = prepare_node(inputs, host_key=host_key, report=_lines(operation, named=False))
        return Created(id=inputs.node.instance_id, outputs=outputs)

    def read(self, state: NodeOutputs, operation: Operation) -> NodeOutputs | None:
        """As it is while its instance lives."""
        return None if _ended(state.home, state.node.instance_id, operation) else state

    def update(self, state: NodeOutputs, inputs: NodeInputs, operation: Operation) -> NodeOutputs:
        """Prepares the node for new inputs, by the host key that is pinned."""
        from bootstrap.converge import prepare_node  # noqa: PLC0415 - see the module's docstring

        outputs: NodeOutputs = prepare_node(inputs, host_key=state.host_key, report=_lines(operation, named=False))
        return outputs

    def delete(self, values: Values, operation: Operation) -> None:
        """Does nothing."""


class RayHead(Resource[RayHeadInputs, RayHeadOutputs]):
    """The token and the supervised head container."""

    pulumi_type: ClassVar = "rayrig:index:RayHead"
    replaced_by: ClassVar = ("home", "clusterId", "head.instanceId")
    relearned: ClassVar = ("stageSeconds",)
    resumable: ClassVar = True
    inputs = RayHeadInputs
    outputs = RayHeadOutputs

    def create(self, inputs: RayHeadInputs, operation: Operation) -> Created[RayHeadOutputs]:
        """Starts the head."""
        from bootstrap.converge import start_head  # noqa: PLC0415 - see the module's docstring

        return Created(id=inputs.head.instance_id, outputs=start_head(inputs, report=_lines(operation, named=False)))

    def read(self, state: RayHeadOutputs, operation: Operation) -> RayHeadOutputs | None:
        """As it is while its instance lives."""
        return None if _ended(state.home, state.head.instance_id, operation) else state

    def update(self, state: RayHeadOutputs, inputs: RayHeadInputs, operation: Operation) -> RayHeadOutputs:
        """Brings the head to new inputs."""
        from bootstrap.converge import start_head  # noqa: PLC0415 - see the module's docstring

        del state
        outputs: RayHeadOutputs = start_head(inputs, report=_lines(operation, named=False))
        return outputs

    def delete(self, values: Values, operation: Operation) -> None:
        """Does nothing."""


class RayFleet(Resource[RayFleetInputs, RayFleetOutputs]):
    """The workers, joined, and the proof that every node is ready."""

    pulumi_type: ClassVar = "rayrig:index:RayFleet"
    replaced_by: ClassVar = ("home", "clusterId", "head.instanceId")
    relearned: ClassVar = ("provenAt", "versions", "stageSeconds")
    resumable: ClassVar = True
    inputs = RayFleetInputs
    outputs = RayFleetOutputs

    def create(self, inputs: RayFleetInputs, operation: Operation) -> Created[RayFleetOutputs]:
        """Joins the workers and proves the cluster ready."""
        from bootstrap.converge import converge_fleet  # noqa: PLC0415 - see the module's docstring

        outputs = converge_fleet(inputs, previous=None, report=_lines(operation, named=True))
        return Created(id=f"{inputs.cluster_id}-fleet", outputs=outputs)

    def read(self, state: RayFleetOutputs, operation: Operation) -> RayFleetOutputs | None:
        """As it is while the head's instance lives; a lost worker is seen in the inputs."""
        return None if _ended(state.home, state.head.instance_id, operation) else state

    def update(self, state: RayFleetOutputs, inputs: RayFleetInputs, operation: Operation) -> RayFleetOutputs:
        """Drains what goes, joins what comes, proves all of it."""
        from bootstrap.converge import converge_fleet  # noqa: PLC0415 - see the module's docstring

        fields: dict[str, Any] = {name: getattr(state, name) for name in RayFleetInputs.model_fields}
        previous = RayFleetInputs(**fields)
        outputs: RayFleetOutputs = converge_fleet(inputs, previous=previous, report=_lines(operation, named=True))
        return outputs

    def delete(self, values: Values, operation: Operation) -> None:
        """Does nothing."""


class _Line(Protocol):
    """A line of bootstrap's progress."""

    @property
    def node(self) -> str: ...
    @property
    def stage(self) -> str: ...
    @property
    def text(self) -> str: ...


def _lines(operation: Operation, *, named: bool) -> Callable[[_Line], None]:
    """Shows bootstrap's progress beside the resource's row; the node's name only where the row is of several nodes."""

    def show(line: _Line) -> None:
        node = f"{line.node}: " if named else ""
        operation.report(f"{node}{line.stage}: {line.text}")

    return show


def _host_key(inputs: NodeInputs, operation: Operation) -> str:
    home = inputs.home
    kind = home.endpoint.kind
    publisher = Publisher(
        name=inputs.node.name,
        instance_id=inputs.node.instance_id,
        role_id=inputs.role_id,
        cluster_id=inputs.cluster_id,
        bucket=inputs.bucket,
    )
    return wait_for_host_key(
        client("s3", region=home.region, endpoint=home.endpoint),
        client("ec2", region=home.region, endpoint=home.endpoint),
        publisher,
        patience=operation.patience(
            deadline_seconds=HOST_KEY_SECONDS[kind], interval_seconds=HOST_KEY_LOOK_SECONDS[kind]
        ),
        report=operation.report,
    )


def _ended(home: Home, instance_id: str, operation: Operation) -> bool:
    ec2 = client("ec2", region=home.region, endpoint=home.endpoint)
    patience = operation.patience(deadline_seconds=GONE_SECONDS, interval_seconds=GONE_SECONDS)
    return is_gone(ec2, instance_id, patience=patience)
