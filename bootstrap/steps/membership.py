"""Which nodes Ray has, and waiting until they are the wanted ones."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bootstrap.on_node import run_program
from bootstrap.progress import NodeLog
from bootstrap.steps.ray import container_trouble
from contract.errors import NotReadyError
from contract.inventory import Node, Ports
from contract.names import TOKEN_PATH
from remote import Connection

JOIN_SECONDS = 90.0
"""From the start of the containers to every node alive: 7-16 s on two shared cores."""
LOOK_SECONDS = 3.0
START_TOLERANCE_MS = 500
"""Docker notes the start a moment after the process may have begun."""


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """One row of Ray's node table."""

    node_id: str
    address: str
    alive: bool
    started_ms: float
    message: str | None


@dataclass(frozen=True, kw_only=True)
class JoiningNode:
    """A node that is expected in Ray, and what is known of its container.

    Attributes:
        restarts_before: how often Docker had restarted the container when this run began.
        started_ms: when the container started, Unix time in milliseconds by the node's clock.
    """

    node: Node
    connection: Connection
    log: NodeLog
    restarts_before: int
    started_ms: float

    @property
    def earliest_ms(self) -> float:
        """Ray nodes at this address that started earlier are ghosts of a container before this one."""
        return self.started_ms - START_TOLERANCE_MS


def _look(
    head: Connection, *, ports: Ports, expected: Mapping[str, float], gone: Sequence[str], wait_seconds: float
) -> tuple[bool, list[RayNode]]:
    answer: dict[str, Any] = run_program(
        head,
        "nodes",
        timeout_seconds=wait_seconds + 30,
        expected=dict(expected),
        gone=list(gone),
        dashboard_port=ports.dashboard,
        token_path=TOKEN_PATH,
        wait_seconds=wait_seconds,
    )
    rows = [
        RayNode(
            node_id=row["node_id"],
            address=row["node_ip"],
            alive=row["state"] == "ALIVE",
            started_ms=float(row.get("start_time_ms") or 0),
            message=row.get("state_message"),
        )
        for row in answer["nodes"]
    ]
    return bool(answer["settled"]), rows


def list_ray_nodes(head: Connection, *, ports: Ports) -> list[RayNode]:
    """Ray's node table as the head tells it now; empty when its dashboard does not answer."""
    return _look(head, ports=ports, expected={}, gone=[], wait_seconds=0)[1]


def wait_for_nodes(
    head: Connection,
    log: NodeLog,
    *,
    nodes: Sequence[JoiningNode],
    gone: Sequence[str],
    ports: Ports,
    lost_seconds: float,
    timeout_seconds: float = JOIN_SECONDS,
) -> dict[str, str]:
    """Waits until Ray shows every node alive, each address once, and none of the gone ones.

    Args:
        head: where Ray is asked.
        log: the head's.
        nodes: all wanted nodes; one whose container does not stay up is told at once.
        gone: private addresses that must not be alive any more.
        ports: Ray's ports.
        lost_seconds: what Ray may need to notice a dead node, added to the deadline.
        timeout_seconds: for joining.

    Returns:
        Ray's node id of each node, by the node's name.

    Raises:
        StepError: a worker's container does not stay up, with Ray's last words.
        NotReadyError: not all alive in time; it names them, and a node that joined and was declared dead again.
    """
    wanted = {joining.node.private_ip: joining for joining in nodes}
    earliest = {address: joining.earliest_ms for address, joining in wanted.items()}
    end = time.monotonic() + timeout_seconds + lost_seconds
    came: dict[str, RayNode] = {}
    while True:
        settled, rows = _look(head, ports=ports, expected=earliest, gone=gone, wait_seconds=LOOK_SECONDS)
        alive = {r.address: r for r in rows if r.alive and r.address in wanted and r.started_ms >= earliest[r.address]}
        for address in sorted(set(alive) - {row.address for row in came.values()}):
            log.say("join", f"{wanted[address].node.name} alive in Ray")
        came |= {row.node_id: row for row in alive.values()}
        if settled:
            return {wanted[address].node.name: row.node_id for address, row in alive.items()}
        missing = [joining for address, joining in wanted.items() if address not in alive]
        for joining in missing:
            trouble = container_trouble(joining.connection, joining.log, restarts_before=joining.restarts_before)
            if trouble is not None:
                raise trouble
        if fell := next((r for r in rows if not r.alive and r.node_id in came and r.address not in alive), None):
            raise _declared_dead(wanted[fell.address].node.name, fell, ports)
        if time.monotonic() >= end:
            lingering = sorted({row.address for row in rows if row.alive} & set(gone))
            raise _not_joined([joining.node.name for joining in missing], lingering, timeout_seconds)


def _declared_dead(name: str, row: RayNode, ports: Ports) -> NotReadyError:
    return NotReadyError(
        "the node joined Ray and was declared dead",
        where=name,
        why=f"Ray says: {row.message or 'no reason'}. The head cannot reach the node's raylet: ports "
        f"{ports.node_manager} and {ports.object_manager} from the head to this node are shut",
        next_step="the cluster's security group must allow all TCP from itself; pulumi up restores it",
    )


def _not_joined(missing: Sequence[str], lingering: Sequence[str], seconds: float) -> NotReadyError:
    if not missing and lingering:
        return NotReadyError(
            "removed nodes are still alive in Ray",
            why=", ".join(lingering),
            next_step="terminate their instances, then pulumi up",
        )
    return NotReadyError(
        f"not alive in Ray after {seconds:g} s: {', '.join(missing) or 'a node listed twice'}",
        why="their containers run, so the way to the head's GCS or back is shut, or the machines are overloaded",
        next_step="sudo docker logs rayrig-ray, on the named nodes",
    )
