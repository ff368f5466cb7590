"""Brings nodes, head and fleet to what is wanted: the three calls behind `pulumi up` and `rayrig repair`.

Each blocks, has a deadline on everything that waits, reports as it goes, and changes nothing the second time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from bootstrap.container import RaySpec, ray_container
from bootstrap.facts import NodeFacts, read_facts
from bootstrap.progress import NodeLog, Report, step_error
from bootstrap.readiness import STEP as READINESS
from bootstrap.readiness import ProofInputs, Readiness, keep_proof, known_proof, prove, prove_network
from bootstrap.steps.boot import STEP as BOOT
from bootstrap.steps.boot import wait_for_boot
from bootstrap.steps.docker import STEP as DOCKER
from bootstrap.steps.docker import ensure_docker
from bootstrap.steps.drain import STEP as DRAIN
from bootstrap.steps.drain import drain_in_ray, gcs_address, stop_container
from bootstrap.steps.image import STEP as IMAGE
from bootstrap.steps.image import ensure_image
from bootstrap.steps.membership import JoiningNode, RayNode, list_ray_nodes, wait_for_nodes
from bootstrap.steps.nvidia_toolkit import STEP as TOOLKIT
from bootstrap.steps.nvidia_toolkit import check_gpus, ensure_toolkit
from bootstrap.steps.ray import HEAD, WORKER, RunningContainer, check_reach, ensure_container, wait_for_head
from bootstrap.steps.token import STEP as TOKEN
from bootstrap.steps.token import ensure_token_on_head, ensure_token_on_worker, fingerprint
from contract.errors import RayrigError, StepError, UnreachableError
from contract.inventory import Node
from contract.resources import (
    NodeInputs,
    NodeOutputs,
    RayFleetInputs,
    RayFleetOutputs,
    RayHeadInputs,
    RayHeadOutputs,
)
from remote import Connection, Deadlines, Target, connect_until

SSH_SECONDS = 60.0
"""A node that published its host key has booted: its SSH server is there or about to start."""
LEAVING_SSH_SECONDS = 8.0
"""A node that is being removed may be dead already."""
CLOCK_SKEW_SECONDS = 60
COMPARED_VERSIONS = ("ray", "python", "torch", "cuda")
"""Ray compares itself and Python to the patch level when a node joins; torch must match for jobs."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(kw_only=True)
class _Visit:
    """One node during one run."""

    node: Node
    connection: Connection
    log: NodeLog
    facts: NodeFacts
    versions: dict[str, str] = field(default_factory=dict)


def prepare_node(inputs: NodeInputs, *, host_key: str, report: Report) -> NodeOutputs:
    """Brings one machine to where Ray can be started on it: booted, Docker, GPUs, image.

    Args:
        inputs: the node and the image it is to run.
        host_key: the SSH host key that the instance itself published.
        report: takes progress lines.

    Raises:
        StepError: it names node, step, cause and next step.
        UnreachableError: SSH does not come up, by layer.
    """
    log = NodeLog(node=inputs.node.name, report=report)
    node = inputs.node.model_copy(update={"host_key": host_key})
    with ExitStack() as stack:
        connection = _connect(stack, node, inputs.user, log)
        with log.guarded(BOOT):
            wait_for_boot(connection, log)
        facts, versions = _ensure_base(connection, node, inputs.image, log)
    found = {
        "os": facts.system.os,
        "kernel": facts.system.kernel,
        "docker": facts.docker.version,
        "driver": facts.gpus.driver_version,
        **versions,
    }
    return NodeOutputs(
        **dict(inputs),
        host_key=host_key,
        versions={name: version for name, version in found.items() if version},
        stage_seconds=log.stage_seconds,
    )


def start_head(inputs: RayHeadInputs, *, report: Report) -> RayHeadOutputs:
    """Makes the token and starts the head; returns as soon as GCS answers, which is all that workers need.

    The dashboard answers some seconds later, while the workers start. A head that runs as wanted is left alone,
    whatever number of CPUs it offers: both are the fleet's business.

    Raises:
        StepError: it names step, cause and next step.
        UnreachableError: the head cannot be reached, by layer.
    """
    log = NodeLog(node=inputs.head.name, report=report, quiet=True)
    with ExitStack() as stack:
        visit = _visit(stack, inputs.head, inputs, log)
        _start_head(visit, inputs, cpu_count=0, any_cpus=True)
    return RayHeadOutputs(
        **dict(inputs),
        address=gcs_address(inputs.head.private_ip, inputs.ports),
        stage_seconds=log.stage_seconds,
    )


def converge_fleet(inputs: RayFleetInputs, *, previous: RayFleetInputs | None, report: Report) -> RayFleetOutputs:
    """Drains removed workers, joins the wanted ones, and proves the whole cluster ready.

    Args:
        inputs: the wanted fleet.
        previous: the fleet of the last run, for what is to be removed; None the first time.
        report: takes progress lines, from several threads.

    Raises:
        StepError: a step failed on a node.
        NotReadyError: a proof failed; it names nodes and ports.
        UnreachableError: a node cannot be reached, by layer.
    """
    nodes = [inputs.head, *inputs.workers]
    logs = {node.name: NodeLog(node=node.name, report=report, quiet=True) for node in nodes}
    leaving = _leaving(inputs, previous)
    with ExitStack() as stack:
        visits = _parallel(lambda n: _visit(stack, n, inputs, logs[n.name]), nodes)
        head, workers = visits[0], visits[1:]
        _compare_versions(visits)
        cpu_count = 0 if workers else inputs.head.cpu_count
        token, head_joining = _start_head(head, inputs, cpu_count=cpu_count, any_cpus=False)
        if leaving:
            _wait_for_head(head, inputs, "dashboard", dashboard=True)
            _drain(head, leaving, inputs, report)
        spec = _spec(inputs, token)
        joining = _parallel(lambda v: _start_worker(v, inputs, spec, token), workers)
        _wait_for_head(head, inputs, "dashboard", dashboard=True)
        with head.log.timed("join"):
            ray_ids = wait_for_nodes(
                head.connection,
                head.log,
                nodes=[head_joining, *joining],
                gone=[node.private_ip for node in leaving],
                ports=inputs.ports,
                lost_seconds=inputs.health_check.detection_seconds,
            )
        readiness = _prove(visits, inputs, spec, ray_ids)
    seconds = {f"{name}.{stage}": value for name, log in logs.items() for stage, value in log.stage_seconds.items()}
    return RayFleetOutputs(
        **dict(inputs),
        state="ready",
        proven_at=datetime.fromisoformat(readiness.document["provenAt"]),
        versions=readiness.versions,
        stage_seconds=seconds,
    )


def _leaving(inputs: RayFleetInputs, previous: RayFleetInputs | None) -> list[Node]:
    """Workers of the last run whose instances are not wanted any more."""
    kept = {node.instance_id for node in (inputs.head, *inputs.workers)}
    return [node for node in (previous.workers if previous else ()) if node.instance_id not in kept]


def _parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Does the same on all items at once; all end before the first failure is raised."""
    if not items:
        return []
    with ThreadPoolExecutor(max_workers=min(64, len(items))) as pool:
        futures = [pool.submit(work, item) for item in items]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if len(errors) > 1 and all(isinstance(error, RayrigError) for error in errors):
        raise StepError(f"{len(errors)} nodes failed", why="\n".join(str(error) for error in errors)) from errors[0]
    if errors:
        raise errors[0]
    return [future.result() for future in futures]


def _connect(stack: ExitStack, node: Node, user: str, log: NodeLog, timeout_seconds: float = SSH_SECONDS) -> Connection:
    if node.host_key is None:
        raise step_error(
            log.node,
            "ssh",
            "the node's host key is not known",
            why="the Node resource learns it before anything else runs",
            next_step="pulumi up",
        )
    target = Target(name=node.name, host=node.address, host_key=node.host_key, user=user)
    with log.timed("ssh"):
        return stack.enter_context(
            connect_until(
                target,
                timeout_seconds=timeout_seconds,
                deadlines=Deadlines(tcp_seconds=2),
                on_wait=lambda error: log.say("ssh", f"waiting: {error.what}"),
            )
        )


def _ensure_base(connection: Connection, node: Node, image: str, log: NodeLog) -> tuple[NodeFacts, dict[str, str]]:
    """Docker, GPUs and image; facts and the versions inside the image."""
    with log.timed("facts"):
        facts = read_facts(connection, image=image)
    skew_seconds = facts.system.clock_unix_seconds - time.time()
    if abs(skew_seconds) > CLOCK_SKEW_SECONDS:
        log.say("facts", f"the node's clock is {skew_seconds:+.0f} s off; AWS refuses requests that are 900 s off")
    if facts.gpus.any or node.gpu_count:
        check_gpus(log, facts, expected=node.gpu_count)
    with log.guarded(DOCKER):
        facts = ensure_docker(connection, log, facts, image=image)
    with log.guarded(TOOLKIT):
        facts = ensure_toolkit(connection, log, facts, image=image)
    with log.guarded(IMAGE):
        versions = ensure_image(connection, log, facts, image=image)
    return facts, versions


def _visit(stack: ExitStack, node: Node, inputs: RayHeadInputs, log: NodeLog) -> _Visit:
    """Connects, and makes sure that what the Node resource prepared is still there."""
    connection = _connect(stack, node, inputs.user, log)
    facts, versions = _ensure_base(connection, node, inputs.image, log)
    return _Visit(node=node, connection=connection, log=log, facts=facts, versions=versions)


def _spec(inputs: RayHeadInputs, token: str) -> RaySpec:
    return RaySpec(
        home=inputs.home,
        image=inputs.image,
        ports=inputs.ports,
        health_check=inputs.health_check,
        head_address=inputs.head.private_ip,
        token_fingerprint=fingerprint(token),
    )


def _start_head(visit: _Visit, inputs: RayHeadInputs, *, cpu_count: int, any_cpus: bool) -> tuple[str, JoiningNode]:
    """Token, container, answer; returns the token and the head as it will appear in Ray."""
    with visit.log.guarded(TOKEN):
        token = ensure_token_on_head(visit.connection, visit.log, visit.facts.token)
    with visit.log.guarded(HEAD):
        container = ensure_container(
            visit.connection,
            visit.log,
            step=HEAD,
            node=visit.node,
            spec=_spec(inputs, token),
            facts=visit.facts,
            cpu_count=cpu_count,
            any_cpus=any_cpus,
        )
    _wait_for_head(visit, inputs, "gcs", dashboard=False)
    return token, _joining(visit, container)


def _wait_for_head(visit: _Visit, inputs: RayHeadInputs, stage: str, *, dashboard: bool) -> None:
    with visit.log.timed(stage):
        wait_for_head(
            visit.connection, visit.log, address=visit.node.private_ip, ports=inputs.ports, dashboard=dashboard
        )
    visit.log.say(HEAD, f"{stage} answers")


def _joining(visit: _Visit, container: RunningContainer) -> JoiningNode:
    return JoiningNode(
        node=visit.node,
        connection=visit.connection,
        log=visit.log,
        restarts_before=container.restarts,
        started_ms=container.started_ms,
    )


def _start_worker(visit: _Visit, inputs: RayFleetInputs, spec: RaySpec, token: str) -> JoiningNode:
    with visit.log.guarded(TOKEN):
        ensure_token_on_worker(visit.connection, visit.log, visit.facts.token, token=token)
    check_reach(visit.connection, visit.log, address=inputs.head.private_ip, ports=inputs.ports)
    with visit.log.guarded(WORKER):
        container = ensure_container(
            visit.connection,
            visit.log,
            step=WORKER,
            node=visit.node,
            spec=spec,
            facts=visit.facts,
            cpu_count=visit.node.cpu_count,
        )
    return _joining(visit, container)


def _compare_versions(visits: Sequence[_Visit]) -> None:
    """Refuses before anything joins when two nodes differ in what Ray or jobs compare."""
    head = visits[0]
    for visit in visits[1:]:
        differing = [
            f"{name} {visit.versions.get(name, 'absent')} here, {head.versions.get(name, 'absent')} on {head.node.name}"
            for name in COMPARED_VERSIONS
            if visit.versions.get(name) != head.versions.get(name)
        ]
        if differing:
            raise step_error(
                visit.node.name,
                WORKER,
                "its image differs from the head's",
                why=", ".join(differing),
                next_step="one image digest for all nodes: pulumi config get rayrig:image",
            )


def _drain(head: _Visit, leaving: Sequence[Node], inputs: RayFleetInputs, report: Report) -> None:
    """Tells Ray first, then stops what can still be reached; a dead node is no failure."""
    by_ip = {
        row.address: row
        for row in list_ray_nodes(head.connection, ports=inputs.ports)
        if row.alive and row.address in {node.private_ip for node in leaving}
    }

    def leave(node: Node) -> None:
        log = NodeLog(node=node.name, report=report)
        row: RayNode | None = by_ip.get(node.private_ip)
        if row is not None:
            log.say(DRAIN, "no new work for this node")
            drain_in_ray(
                head.connection, log, node_id=row.node_id, gcs_address=gcs_address(inputs.head.private_ip, inputs.ports)
            )
        try:
            with ExitStack() as stack:
                stop_container(_connect(stack, node, inputs.user, log, LEAVING_SSH_SECONDS), log)
        except (StepError, UnreachableError) as error:
            log.say(DRAIN, f"not reachable any more, goes as it is ({error.what})")

    _parallel(leave, leaving)


def _prove(visits: Sequence[_Visit], inputs: RayFleetInputs, spec: RaySpec, ray_ids: Mapping[str, str]) -> Readiness:
    """The whole proof, or its quick part where the same Ray nodes were proven before."""
    head = visits[0]
    connections = {v.node.name: v.connection for v in visits}
    wanted = ProofInputs(
        cluster_id=inputs.cluster_id,
        nodes=[v.node for v in visits],
        ports=inputs.ports,
        health_check=inputs.health_check,
        storage=inputs.storage,
        shm_bytes={v.node.name: ray_container(v.node, spec, v.facts, cpu_count=0).sizes.shm_bytes for v in visits},
        gpus_by_driver={v.node.name: len(v.facts.gpus.names) for v in visits},
    )
    with head.log.timed(READINESS):
        if (known := known_proof(head.connection, ray_ids)) is not None:
            prove_network(wanted, connections)
            head.log.say(READINESS, f"unchanged since {known.document['provenAt']}, ports and token proven again")
            return known
        readiness = prove(wanted, connections, head.log)
        keep_proof(head.connection, ray_ids, readiness)
        return readiness
