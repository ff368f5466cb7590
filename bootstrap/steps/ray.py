"""Steps ray_head and ray_worker: the supervised Ray container, made anew only when its description changed."""

import time
from dataclasses import dataclass
from datetime import datetime

from bootstrap.container import RAY_DIRECTORY, STOP_SECONDS, RayContainer, RaySpec, ray_container
from bootstrap.facts import NodeFacts
from bootstrap.on_node import run_program
from bootstrap.progress import NodeLog, step_error
from contract.errors import StepError
from contract.inventory import Node, Ports
from contract.names import CONTAINER_UID, RAY_CONTAINER, TOKEN_PATH
from remote import CommandError, Connection

HEAD = "ray_head"
WORKER = "ray_worker"
JOIN = "join"
HEAD_SECONDS = 90.0
"""GCS and dashboard: 3 and 6-9 s on two shared cores."""
REACH_SECONDS = 15.0
"""How long a worker tries the head's GCS port before anything is started on it."""
GIVE_UP_RESTARTS = 2
HTTP_UNAUTHORIZED = 401
HTTP_FORBIDDEN = 403

_REPLACE = """
set -eu
install -d -m 0755 -o "$1" -g "$1" "$2"
name=$3
stop_seconds=$4
shift 4
if docker inspect "$name" >/dev/null 2>&1; then
  docker stop --time "$stop_seconds" "$name" >/dev/null
  docker rm --force "$name" >/dev/null
fi
"$@" >/dev/null
docker inspect --format '{{.State.StartedAt}}' "$name"
"""

_STATE = """
docker inspect --format '{{.State.Status}} {{.RestartCount}} {{.State.ExitCode}}' "$1" || exit 0
docker logs --tail 25 "$1" 2>&1
"""


@dataclass(frozen=True, kw_only=True)
class RunningContainer:
    """A running Ray container: when it started (Unix time in ms, the node's clock), and Docker's restart count."""

    started_ms: float
    restarts: int


def ensure_container(
    connection: Connection,
    log: NodeLog,
    *,
    step: str,
    node: Node,
    spec: RaySpec,
    facts: NodeFacts,
    cpu_count: int,
    any_cpus: bool = False,
) -> RunningContainer:
    """Starts the node's container unless it already runs as wanted.

    Returns:
        When it started, and how often Docker has restarted it.

    Raises:
        StepError: Docker refused it, or the node's address or memory do not fit.
    """
    started = time.monotonic()
    if node.private_ip not in facts.system.addresses:
        raise step_error(
            log.node,
            step,
            f"the node does not have its address {node.private_ip}",
            why=f"it has {', '.join(facts.system.addresses)}",
            next_step="pulumi up refreshes the addresses",
        )
    try:
        wanted = ray_container(node, spec, facts, cpu_count=cpu_count)
    except ValueError as error:
        raise step_error(
            log.node, step, "Ray cannot be sized", why=str(error), next_step="choose a larger instance type"
        ) from error
    found = facts.container
    if found is not None and found.running and wanted.matches(found.spec, any_cpus=any_cpus):
        log.add(step, changed=False, why="the Ray container runs as wanted", started=started)
        return RunningContainer(started_ms=unix_ms(found.started_at), restarts=found.restarts)
    if found is None:
        _check_ports_free(log, step, spec.ports, facts)
    started_at = _replace(connection, log, step, wanted)
    if found is None:
        why = "Ray container started"
    elif found.running:
        why = "Ray container replaced: its description changed"
    else:
        why = f"Ray container replaced: it was {found.status} (exit code {found.exit_code})"
    log.add(step, changed=True, why=why, started=started)
    return RunningContainer(started_ms=unix_ms(started_at), restarts=0)


def _check_ports_free(log: NodeLog, step: str, ports: Ports, facts: NodeFacts) -> None:
    """Ray would start, then fail half way or share a port with a stranger."""
    pinned = {name: port for name, port in ports.model_dump(by_alias=False).items() if not name.endswith("_worker")}
    taken = [f"{port} ({name})" for name, port in pinned.items() if port in facts.system.listening_ports]
    if taken:
        raise step_error(
            log.node,
            step,
            f"another program listens on Ray's ports: {', '.join(taken)}",
            why="a node runs one Ray, ours",
            next_step="sudo ss --listening --tcp --processes, on the node",
        )


def _replace(connection: Connection, log: NodeLog, step: str, wanted: RayContainer) -> str:
    prefix = ["sh", "-c", _REPLACE, "replace", str(CONTAINER_UID), RAY_DIRECTORY, RAY_CONTAINER, str(STOP_SECONDS)]
    try:
        done = connection.run([*prefix, *wanted.argv], sudo=True, timeout_seconds=STOP_SECONDS + 60)
    except CommandError as error:
        raise step_error(
            log.node,
            step,
            "Docker did not start the Ray container",
            why=error.why,
            next_step=f"sudo docker logs {RAY_CONTAINER}, on the node",
        ) from error
    return done.stdout.strip().splitlines()[-1]


def unix_ms(docker_time: str) -> float:
    """Docker's time stamp (RFC 3339 in UTC, nanoseconds) as Unix time in milliseconds."""
    return datetime.fromisoformat(docker_time[:19] + "+00:00").timestamp() * 1000


def wait_for_head(
    connection: Connection,
    log: NodeLog,
    *,
    address: str,
    ports: Ports,
    dashboard: bool,
    timeout_seconds: float = HEAD_SECONDS,
) -> None:
    """Waits until GCS answers and, if `dashboard`, until the dashboard does with the token on file.

    Raises:
        StepError: the container ended, or one of them does not answer in time; the error names which.
    """
    answer = run_program(
        connection,
        "head",
        timeout_seconds=timeout_seconds + 30,
        container=RAY_CONTAINER,
        address=address,
        gcs_port=ports.gcs,
        dashboard_port=ports.dashboard,
        need_dashboard=dashboard,
        token_path=TOKEN_PATH,
        wait_seconds=timeout_seconds,
    )
    status = int(str(answer["dashboard"]))
    if answer["ready"]:
        return
    state = answer["container"]
    tail = answer["log_tail"]
    why = "\n".join(str(line) for line in tail) if isinstance(tail, list) else ""
    if answer["failed"] and isinstance(state, dict):
        what = f"the Ray container ended (exit code {state.get('exit_code')}, restarted {state.get('restarts')} times)"
    elif not answer["gcs"]:
        what = f"Ray's GCS does not answer on {address}:{ports.gcs} after {timeout_seconds:g} s"
    elif status in {HTTP_UNAUTHORIZED, HTTP_FORBIDDEN}:
        what = f"Ray refuses the token in {TOKEN_PATH} (HTTP {status})"
    else:
        what = f"Ray's dashboard does not answer on port {ports.dashboard} after {timeout_seconds:g} s"
    raise step_error(log.node, HEAD, what, why=why, next_step=f"sudo docker logs {RAY_CONTAINER}, on the head")


def check_reach(
    connection: Connection,
    log: NodeLog,
    *,
    address: str,
    ports: Ports,
    timeout_seconds: float = REACH_SECONDS,
) -> None:
    """From a worker, before Ray is started on it: does the head's GCS port answer?

    `ray start` itself retries a bad address for minutes without an error.

    Raises:
        StepError: closed by a rule, refused, or unroutable; three messages.
    """
    with log.timed("reach_head"):
        answer = run_program(
            connection,
            "ports",
            timeout_seconds=timeout_seconds + 20,
            listen=[],
            peers=0,
            connect=[[address, ports.gcs]],
            wait_seconds=timeout_seconds,
        )
    failed = answer["failed"]
    if not isinstance(failed, dict) or not failed:
        return
    outcome = str(next(iter(failed.values())))
    if outcome == "silent":
        why = "No answer at all: the security group drops it, or no machine has this address"
        next_step = "the cluster's security group must allow all TCP from itself; pulumi up restores it"
    elif outcome == "refused":
        why = "The machine answers but Ray's GCS does not listen there: wrong address, or the head's Ray is down"
        next_step = f"sudo docker logs {RAY_CONTAINER}, on the head"
    else:
        why, next_step = outcome, "check the head's private address and the subnet's route"
    raise step_error(
        log.node, WORKER, f"the head's GCS cannot be reached at {address}:{ports.gcs}", why=why, next_step=next_step
    )


def container_trouble(connection: Connection, log: NodeLog, *, restarts_before: int) -> StepError | None:
    """An error if the node's container ended or keeps restarting, with Ray's own last words; else None.

    One restart is no trouble: a raylet ends itself when its head came back as another, and joins the new one.

    Args:
        connection: the node.
        log: its log.
        restarts_before: how often Docker had restarted the container when this run began.
    """
    shown = connection.run(["sh", "-c", _STATE, "state", RAY_CONTAINER], sudo=True, timeout_seconds=30).stdout
    first, _, tail = shown.partition("\n")
    status, restarts, exit_code = [*first.split(), "", "", ""][:3]
    new_restarts = int(restarts or 0) - restarts_before
    if status in {"running", "restarting"} and new_restarts < GIVE_UP_RESTARTS:
        return None
    wrong_token = any(words in tail for words in ("nauthenticated", "InvalidAuthToken", "AuthenticationError"))
    what = "the head refuses this node's token" if wrong_token else "the Ray container does not stay up"
    return step_error(
        log.node,
        JOIN,
        what,
        why=f"status {status or 'absent'}, {new_restarts} restarts, exit code {exit_code or 'none'}\n{tail.strip()}",
        next_step=f"sudo docker logs {RAY_CONTAINER}, on the node",
    )
