"""Ready means proven: ports both ways, token enforced, closed from outside, and Ray working on every node."""

import json
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bootstrap.on_node import program, run_program
from bootstrap.progress import NodeLog
from contract.errors import NotReadyError
from contract.inventory import HealthCheck, Node, Ports, Role, Storage
from contract.names import NODE_STATE_DIR, RAY_CONTAINER, TOKEN_PATH
from remote import CommandError, CommandTimeoutError, Connection

STEP = "readiness"
PROOF_PATH = f"{NODE_STATE_DIR}/readiness.json"
"""On the head: the last proof and the Ray nodes it was made for."""
PORTS_SECONDS = 25.0
"""Ray's agents start listening some seconds after their raylet."""
TASK_SECONDS = 30.0
OUTSIDE_SECONDS = 1.5
UNAUTHORIZED = 401
FORBIDDEN = 403
OK = 200

NODE_PORTS = (
    "node_manager",
    "object_manager",
    "dashboard_agent_grpc",
    "dashboard_agent_listen",
    "runtime_env_agent",
    "metrics_export",
)
HEAD_PORTS = ("gcs", "ray_client", "autoscaler_metrics", "dashboard_metrics")
SHUT_PORTS = ("gcs", "dashboard", "ray_client", "node_manager", "object_manager")
"""Tried from outside: these must not answer there."""


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """A passed proof; `document` is what was saved."""

    document: dict[str, Any]
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ProofInputs:
    """What is to be proven.

    Attributes:
        cluster_id: for the saved document.
        nodes: head first.
        shm_bytes: size of /dev/shm in each node's container, by node name.
        gpus_by_driver: GPUs that nvidia-smi shows, by node name.
    """

    cluster_id: str
    nodes: Sequence[Node]
    ports: Ports
    health_check: HealthCheck
    storage: Storage
    shm_bytes: Mapping[str, int]
    gpus_by_driver: Mapping[str, int]


def known_proof(head: Connection, ray_ids: Mapping[str, str]) -> Readiness | None:
    """The proof of an earlier run, if every node is still the same Ray node: nothing restarted, nothing joined."""
    text = head.run(["cat", PROOF_PATH], sudo=True, timeout_seconds=20, check=False).stdout
    try:
        record = json.loads(text)
        same = record["rayIds"] == dict(ray_ids)
        return Readiness(document=record["document"], versions=record["versions"]) if same else None
    except (ValueError, KeyError, TypeError):
        return None


def keep_proof(head: Connection, ray_ids: Mapping[str, str], readiness: Readiness) -> None:
    """Keeps the proof on the head, for `known_proof`."""
    record = {"rayIds": dict(ray_ids), "document": readiness.document, "versions": readiness.versions}
    head.put_text(json.dumps(record), PROOF_PATH, mode="0644", owner="root:root")


def prove_network(inputs: ProofInputs, connections: Mapping[str, Connection]) -> None:
    """Ports both ways, shut from outside, token enforced, GPU counts: about a second.

    Raises:
        NotReadyError: it lists each failed proof with node and port or rule.
    """
    head = next(node for node in inputs.nodes if node.role is Role.HEAD)
    with ThreadPoolExecutor(max_workers=len(inputs.nodes) + 2) as pool:
        outside = pool.submit(open_from_outside, inputs.nodes, inputs.ports)
        token = pool.submit(token_failures, connections[head.name], inputs.ports)
        ports = pool.map(lambda n: _port_failures(n, inputs, connections[n.name]), inputs.nodes)
        failures = [failure for found in ports for failure in found] + token.result() + outside.result()
    failures += [
        f"{node.name}: nvidia-smi shows {inputs.gpus_by_driver.get(node.name, 0)} GPUs, the type has {node.gpu_count}"
        for node in inputs.nodes
        if inputs.gpus_by_driver.get(node.name, 0) != node.gpu_count
    ]
    if failures:
        raise _not_ready(failures)


def prove(inputs: ProofInputs, connections: Mapping[str, Connection], log: NodeLog) -> Readiness:
    """Runs every proof.

    Args:
        inputs: what is to be proven.
        connections: one per node, by name.
        log: the head's.

    Raises:
        NotReadyError: it lists each failed proof with node and port or rule.
    """
    prove_network(inputs, connections)
    head = next(node for node in inputs.nodes if node.role is Role.HEAD)
    log.say(STEP, "all ports both ways, shut from outside, token enforced")
    answer = _drive(inputs, head, connections[head.name], log)
    if not answer["ok"]:
        raise _not_ready([str(f) for f in answer["failures"]])
    document = answer["document"]
    first = document["nodes"][head.name].get("versions", {})
    return Readiness(document=document, versions={str(k): str(v) for k, v in first.items()})


def _not_ready(failures: Sequence[str]) -> NotReadyError:
    return NotReadyError(
        f"the cluster is not ready: {len(failures)} proof{'s' if len(failures) > 1 else ''} failed",
        why="\n".join(failures),
        next_step=f"look at the named node (sudo docker logs {RAY_CONTAINER}), then pulumi up proves again",
    )


def port_plan(node: Node, inputs: ProofInputs) -> list[tuple[str, str, int]]:
    """What a node must reach: (peer's name, name of the port, number), two ports of the worker range among them."""
    plan: list[tuple[str, str, int]] = []
    for peer in inputs.nodes:
        if peer.name == node.name:
            continue
        names = (*NODE_PORTS, *HEAD_PORTS) if peer.role is Role.HEAD else NODE_PORTS
        plan += [(peer.name, name, getattr(inputs.ports, name)) for name in names]
        plan += [(peer.name, "worker range", port) for port in sampled_ports(inputs.ports)]
    return plan


def sampled_ports(ports: Ports) -> tuple[int, int]:
    """Two ports of the worker range that Ray, which starts at the bottom, does not use."""
    return ports.max_worker, (ports.min_worker + ports.max_worker) // 2


def _port_failures(node: Node, inputs: ProofInputs, connection: Connection) -> list[str]:
    plan = port_plan(node, inputs)
    if not plan:
        return []
    addresses = {peer.name: peer.private_ip for peer in inputs.nodes}
    answer = run_program(
        connection,
        "ports",
        timeout_seconds=PORTS_SECONDS + 15,
        listen=list(sampled_ports(inputs.ports)),
        peers=len(inputs.nodes) - 1,
        connect=[[addresses[peer], port] for peer, _, port in plan],
        wait_seconds=PORTS_SECONDS,
    )
    failed = answer["failed"]
    if not isinstance(failed, dict):
        return []
    words = {"silent": "no answer: a security group rule drops it", "refused": "refused: nothing listens there"}
    return [
        f"{node.name} → {peer}: port {port} ({name}): {words.get(outcome, outcome)}"
        for peer, name, port in plan
        if (outcome := failed.get(f"{addresses[peer]}:{port}"))
    ]


def open_from_outside(nodes: Sequence[Node], ports: Ports) -> list[str]:
    """Ray's ports that answer at public addresses: whoever reaches them runs code on the cluster."""
    tries = [(node, name, getattr(ports, name)) for node in nodes if node.public_ip is not None for name in SHUT_PORTS]

    def answers(entry: tuple[Node, str, int]) -> bool:
        try:
            socket.create_connection((entry[0].address, entry[2]), timeout=OUTSIDE_SECONDS).close()
        except OSError:
            return False
        return True

    if not tries:
        return []
    with ThreadPoolExecutor(max_workers=min(32, len(tries))) as pool:
        found = list(pool.map(answers, tries))
    return [
        f"{node.name}: port {port} ({name}) is open from outside at {node.address}: the security group must shut it"
        for (node, name, port), is_open in zip(tries, found, strict=True)
        if is_open
    ]


def token_failures(head: Connection, ports: Ports) -> list[str]:
    """The Jobs API with the token, without and with a wrong one."""
    answer = run_program(head, "token", timeout_seconds=40, dashboard_port=ports.dashboard, token_path=TOKEN_PATH)
    wanted = {"right": OK, "none": UNAUTHORIZED, "wrong": FORBIDDEN}
    names = {"right": "with the token", "none": "without a token", "wrong": "with a wrong token"}
    return [
        f"head: the Jobs API answers {answer.get(kind)} {names[kind]}, not {status}"
        for kind, status in wanted.items()
        if answer.get(kind) != status
    ]


def _drive(inputs: ProofInputs, head: Node, connection: Connection, log: NodeLog) -> dict[str, Any]:
    asked = {
        "address": head.private_ip,
        "gcs_address": f"{head.private_ip}:{inputs.ports.gcs}",
        "dashboard_port": inputs.ports.dashboard,
        "nodes": [
            {"name": n.name, "ip": n.private_ip, "gpus": n.gpu_count, "shm_bytes": inputs.shm_bytes[n.name]}
            for n in inputs.nodes
        ],
        "cluster_uri": inputs.storage.cluster_uri,
        "cluster_id": inputs.cluster_id,
        "task_seconds": TASK_SECONDS,
        "proof_seconds": inputs.health_check.proof_seconds,
        "earlier": {
            "ports": {n.name: len(port_plan(n, inputs)) for n in inputs.nodes},
            "token": {"right": OK, "none": UNAUTHORIZED, "wrong": FORBIDDEN},
            "shutFromOutside": {n.name: n.public_ip is not None for n in inputs.nodes},
        },
    }
    listener = _Lines(log)
    try:
        result = connection.run(
            ["docker", "exec", "--interactive", RAY_CONTAINER, "python", "-", json.dumps(asked)],
            sudo=True,
            stdin=program("prove"),
            timeout_seconds=8 * TASK_SECONDS + inputs.health_check.proof_seconds,
            on_output=listener.take,
        )
    except CommandError as error:
        raise _not_ready([f"head: the proof's driver failed: {error.why}"]) from error
    except CommandTimeoutError as error:
        raise _not_ready([f"head: the proof's driver did not end: {error.what}. {error.why}"]) from error
    return dict(json.loads(result.stdout.strip().splitlines()[-1]))


class _Lines:
    """Passes the driver's progress lines on as they come."""

    def __init__(self, log: NodeLog) -> None:
        self.log = log
        self.rest = ""

    def take(self, piece: str) -> None:
        *lines, self.rest = (self.rest + piece).split("\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "progress" in event:
                self.log.say(STEP, str(event["progress"]))
