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


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """One row of Ray's node table."""

    node_id: str
    address: str
    alive: bool
    message: str | None


def _look(
    head: Connection, *, ports: Ports, expected: Sequence[str], gone: Sequence[str], wait_seconds: float
) -> tuple[bool, list[RayNode]]:
    answer: dict[str, Any] = run_program(
        head,
        "nodes",
        timeout_seconds=wait_seconds + 30,
        expected=list(expected),
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
            message=row.get("state_message"),
        )
        for row in answer["nodes"]
    ]
    return bool(answer["settled"]), rows


def list_ray_nodes(head: Connection, *, ports: Ports) -> list[RayNode]:
    """Ray's node table as the head tells it now; empty when its dashboard does not answer."""
    return _look(head, ports=ports, expected=[], gone=[], wait_seconds=0)[1]


def wait_for_nodes(
    head: Connection,
    log: NodeLog,
    *,
    nodes: Sequence[Node],
    gone: Sequence[str],
    ports: Ports,
    workers: Mapping[str, tuple[Connection, NodeLog]],
    lost_seconds: float,
    timeout_seconds: float = JOIN_SECONDS,
) -> dict[str, str]:
    """Waits until Ray shows every node alive, each address once, and none of the gone ones.

    Args:
        head: where Ray is asked.
        log: the head's.
        nodes: all wanted nodes.
        gone: private addresses that must not be alive any more.
        ports: Ray's ports.
        workers: connection and log of each worker: a container that does not stay up is told at once.
        lost_seconds: what Ray may need to notice a dead node, added to the deadline.
        timeout_seconds: for joining.

    Returns:
        Ray's node id of each node, by the node's name.

    Raises:
        StepError: a worker's container does not stay up, with Ray's last words.
        NotReadyError: not all alive in time; it names them, and a node that joined and was declared dead again.
    """
    names = {node.private_ip: node.name for node in nodes}
    end = time.monotonic() + timeout_seconds + lost_seconds
    joined: set[str] = set()
    while True:
        settled, rows = _look(
            head, ports=ports, expected=list(names), gone=gone, wait_seconds=min(LOOK_SECONDS, timeout_seconds)
        )
        alive = {row.address for row in rows if row.alive}
        for address in sorted((alive & set(names)) - joined):
            log.say("join", f"{names[address]} alive in Ray")
        joined |= alive
        if settled:
            return {names[row.address]: row.node_id for row in rows if row.alive and row.address in names}
        missing = [names[a] for a in names if a not in alive]
        for name in missing:
            if name in workers and (trouble := container_trouble(*workers[name])) is not None:
                raise trouble
        died = [row for row in rows if not row.alive and row.address in joined and row.address not in alive]
        if died and (fell := [row for row in died if row.address in names]):
            raise _declared_dead(names[fell[0].address], fell[0], ports)
        if time.monotonic() >= end:
            raise _not_joined(missing, sorted(alive & set(gone)), timeout_seconds)


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
