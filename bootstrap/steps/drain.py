"""Step drain: a node that leaves is told to take no new work, then its container is stopped."""

import time

from bootstrap.container import STOP_SECONDS
from bootstrap.progress import NodeLog
from contract.errors import UnreachableError
from contract.inventory import Ports
from contract.names import RAY_CONTAINER
from remote import CommandError, Connection

STEP = "drain"
DRAIN_SECONDS = 60.0

_STOP = """
docker inspect "$1" >/dev/null 2>&1 || exit 0
docker stop --time "$2" "$1" >/dev/null
docker rm --force "$1" >/dev/null
echo stopped
"""


def drain_in_ray(head: Connection, log: NodeLog, *, node_id: str, gcs_address: str) -> None:
    """Tells Ray that the node takes no new work; what cannot be told is reported, not fatal: the node goes anyway."""
    try:
        head.run(
            [
                "docker",
                "exec",
                RAY_CONTAINER,
                "ray",
                "drain-node",
                f"--address={gcs_address}",
                f"--node-id={node_id}",
                "--reason=DRAIN_NODE_REASON_PREEMPTION",
                "--reason-message=rayrig removes this node",
                f"--deadline-remaining-seconds={DRAIN_SECONDS:.0f}",
            ],
            sudo=True,
            timeout_seconds=40,
        )
    except (CommandError, UnreachableError) as error:
        log.say(STEP, f"Ray did not drain it: {error}")


def stop_container(connection: Connection, log: NodeLog) -> bool:
    """Stops and removes the node's Ray container, if there is one; Ray says goodbye to the head by itself."""
    started = time.monotonic()
    done = connection.run(
        ["sh", "-c", _STOP, "stop", RAY_CONTAINER, str(STOP_SECONDS)], sudo=True, timeout_seconds=STOP_SECONDS + 30
    )
    changed = "stopped" in done.stdout
    log.add(STEP, changed=changed, why="Ray stopped" if changed else "no Ray here", started=started)
    return changed


def gcs_address(address: str, ports: Ports) -> str:
    """What Ray's commands take as --address."""
    return f"{address}:{ports.gcs}"
