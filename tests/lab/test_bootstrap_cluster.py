"""A cluster of container nodes, converged over real SSH: proven, left alone, broken in every way, healed."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from in_lab import BUCKET, ROLE, LabWorld, until

from bootstrap.container import SPEC_LABEL
from bootstrap.converge import converge_fleet, prepare_node, start_head
from bootstrap.progress import Progress
from bootstrap.readiness import open_from_outside
from contract.errors import NotReadyError, RayrigError, StepError
from contract.inventory import Endpoint, EndpointKind, HealthCheck, Node, Ports, Role, Storage
from contract.names import RAY_CONTAINER, TOKEN_PATH, runs_prefix
from contract.resources import Home, NodeInputs, RayFleetInputs, RayFleetOutputs, RayHeadInputs
from infra.identity import node_policy
from remote.keys import KEY_VARIABLE

BOOT_SECONDS = 60
CLUSTER_ID = "bootstrap-tests"
CLUSTER_URI = f"s3://{BUCKET}/clusters/{CLUSTER_ID}"
QUICK = HealthCheck(initial_delay_ms=3000, period_ms=1000, timeout_ms=2000, failure_threshold=3)
GIB = 2**30


@dataclass(kw_only=True)
class Cluster:
    """Head and two workers, as a test brings them to what it wants."""

    lab: LabWorld
    nodes: list[Node]
    lines: list[Progress] = field(default_factory=list)

    def inputs(self, workers: int = 2) -> RayFleetInputs:
        return RayFleetInputs(
            home=home(self.lab),
            cluster_id=CLUSTER_ID,
            head=self.nodes[0],
            user="ubuntu",
            image=self.lab.lab.image,
            ports=Ports(),
            health_check=QUICK,
            storage=Storage(bucket=BUCKET, results_uri=f"s3://{BUCKET}/runs/bootstrap-tests", cluster_uri=CLUSTER_URI),
            workers=tuple(self.nodes[1 : 1 + workers]),
        )

    def converge(self, workers: int = 2, previous: RayFleetInputs | None = None) -> RayFleetOutputs:
        self.lines.clear()
        return converge_fleet(self.inputs(workers), previous=previous, report=self.lines.append)

    def head_inputs(self) -> RayHeadInputs:
        fleet = self.inputs()
        return RayHeadInputs(**{name: getattr(fleet, name) for name in RayHeadInputs.model_fields})

    def on(self, name: str, *argv: str) -> str:
        """Runs a command on a node past SSH; its output."""
        node = next(n for n in self.nodes if n.name == name)
        code, output = self.lab.on(node.instance_id, argv)
        assert code == 0, f"{name}: {argv}: {output}"
        return output

    def containers(self) -> dict[str, str]:
        """Id of each node's Ray container; empty where there is none."""
        found = {}
        for node in self.nodes:
            code, output = self.lab.on(
                node.instance_id, ["docker", "ps", "--no-trunc", "--quiet", "--filter", f"name={RAY_CONTAINER}"]
            )
            assert code == 0
            found[node.name] = output
        return found

    def main_process(self, name: str) -> str:
        return self.on(name, "docker", "inspect", "--format", "{{.State.Pid}}", RAY_CONTAINER)


def home(lab: LabWorld) -> Home:
    return Home(
        account_id=lab.world.account_id,
        region=lab.world.region,
        endpoint=Endpoint(kind=EndpointKind.REHEARSAL, url=lab.world.endpoint_url),
    )


def node_of(lab: LabWorld, instance_id: str, name: str) -> Node:
    found = lab.instance(instance_id)
    return Node(
        name=name,
        role=Role.HEAD if name == "head" else Role.WORKER,
        instance_id=instance_id,
        instance_type="m7i.large",
        cpu_count=2,
        memory_bytes=8 * GIB,
        gpu_count=0,
        private_ip=found["PrivateIpAddress"],
        public_ip=found["PublicIpAddress"],
        host_key=lab.target(instance_id, seconds=BOOT_SECONDS).host_key,
    )


def prepare(cluster: Cluster, node: Node, image: str) -> dict[str, str]:
    inputs = NodeInputs(
        home=home(cluster.lab),
        cluster_id=CLUSTER_ID,
        node=node.model_copy(update={"host_key": None}),
        user="ubuntu",
        role_id="AROATEST",
        bucket=BUCKET,
        image=image,
    )
    assert node.host_key is not None
    return prepare_node(inputs, host_key=node.host_key, report=cluster.lines.append).versions


@pytest.fixture(scope="module")
def cluster(lab: LabWorld):
    """Three nodes, booted and prepared."""
    names = ("head", "worker-1", "worker-2")
    # The policy that `pulumi up` gives its nodes: the proof must get by with it.
    policy = node_policy(
        bucket_arn=f"arn:aws:s3:::{BUCKET}", cluster_id=CLUSTER_ID, runs_prefix=runs_prefix("bootstrap-tests")
    )
    lab.client("iam").put_role_policy(RoleName=ROLE, PolicyName=CLUSTER_ID, PolicyDocument=policy)
    ids = lab.launch(len(names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, str(lab.place.ssh_key))
        made = Cluster(lab=lab, nodes=[node_of(lab, i, name) for i, name in zip(ids, names, strict=True)])
        yield made
        lab.terminate(*ids)


def seconds_of(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def failure_within(seconds: float, kind: type[RayrigError], work: Callable[[], object]) -> str:
    """The error's text; it must come in time."""
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        work()
    assert time.monotonic() - started < seconds
    return str(caught.value)


def test_a_wrong_digest_fails_soon_with_node_step_cause_and_next_step(cluster):
    wrong = cluster.lab.lab.image.partition("@")[0] + "@sha256:" + "0" * 64
    text = failure_within(3 * 60, StepError, lambda: prepare(cluster, cluster.nodes[0], wrong))
    for words in ("head", "step image", "the registry does not have this image", "manifest unknown", "Next: check"):
        assert words in text


def test_an_unreachable_registry_is_told_from_a_wrong_digest(cluster):
    nowhere = f"{cluster.lab.lab.bridge_address}:9/rayrig@sha256:" + "0" * 64
    text = failure_within(3 * 60, StepError, lambda: prepare(cluster, cluster.nodes[0], nowhere))
    assert "the registry cannot be reached" in text


def test_nodes_are_prepared_and_the_second_time_nothing_changes(cluster):
    versions = [prepare(cluster, node, cluster.lab.lab.image) for node in cluster.nodes]
    assert versions[0]["ray"] == "2.60.0"
    assert {"os", "kernel", "docker", "python", "torch"} <= set(versions[0])
    assert versions[0] == versions[1] == versions[2]
    cluster.lines.clear()
    seconds = seconds_of(lambda: prepare(cluster, cluster.nodes[0], cluster.lab.lab.image))
    assert [p.text for p in cluster.lines if "pulled" in p.text] == []
    assert seconds < 3 * 5


def test_head_and_workers_are_proven_ready(cluster):
    outputs = start_head(cluster.head_inputs(), report=cluster.lines.append)
    assert outputs.address == f"{cluster.nodes[0].private_ip}:6379"
    ready = cluster.converge()
    print("head:", outputs.stage_seconds, "fleet:", ready.stage_seconds)
    assert ready.state == "ready"
    assert ready.versions["ray"] == "2.60.0"
    assert ready.versions["python"]
    document = saved_proof(cluster)
    assert set(document["nodes"]) == {"head", "worker-1", "worker-2"}
    for proof in document["nodes"].values():
        assert proof["task"]
        assert proof["actor"]
        assert proof["storage"]
        assert proof["objects_fetched"] == 2
        assert proof["alive_seconds"] >= QUICK.proof_seconds
        assert all(check["ok"] for check in proof["checks"])
    assert document["token"] == {"right": 200, "none": 401, "wrong": 403}
    assert all(document["shutFromOutside"].values())


def saved_proof(cluster: Cluster) -> dict:
    body = cluster.lab.client("s3").get_object(Bucket=BUCKET, Key="clusters/bootstrap-tests/readiness.json")["Body"]
    return json.loads(body.read())


def test_a_second_run_changes_nothing_and_takes_seconds(cluster):
    before = cluster.containers()
    assert all(before.values())
    seconds = seconds_of(cluster.converge)
    assert cluster.containers() == before
    assert seconds < 3 * 5
    print(f"second converge: {seconds:.1f} s")


def test_the_token_is_only_in_its_file(cluster):
    token = cluster.on("head", "cat", TOKEN_PATH)
    assert len(token) == 64
    for node in cluster.nodes:
        assert cluster.on(node.name, "stat", "--format", "%a %u", TOKEN_PATH) == "600 1000"
        assert cluster.on(node.name, "cat", TOKEN_PATH) == token
        seen = cluster.on(node.name, "docker", "inspect", RAY_CONTAINER) + cluster.on(node.name, "ps", "-ef")
        seen += cluster.on(node.name, "docker", "logs", RAY_CONTAINER)
        assert token not in seen
    assert not [p for p in cluster.lines if token in p.text]


def test_a_killed_ray_comes_back_by_itself(cluster):
    before = cluster.main_process("worker-1")
    cluster.on("worker-1", "kill", "-9", before)
    until(lambda: cluster.main_process("worker-1") not in {before, "0"}, seconds=30, what="Docker starts Ray again")
    cluster.converge()
    assert saved_proof(cluster)["nodes"]["worker-1"]["task"]


def test_a_stopped_container_is_started_by_the_next_run(cluster):
    before = cluster.containers()
    cluster.on("worker-2", "docker", "stop", "--time", "5", RAY_CONTAINER)
    cluster.converge()
    after = cluster.containers()
    assert after["worker-2"] not in {"", before["worker-2"]}
    assert after["head"] == before["head"]
    assert after["worker-1"] == before["worker-1"]


def test_a_head_without_gcs_restarts_whole_and_the_workers_return(cluster):
    gcs = cluster.on("head", "pgrep", "--full", "gcs/gcs_server").split()[0]
    cluster.on("head", "kill", "-9", gcs)
    until(
        lambda: cluster.on("head", "docker", "inspect", "--format", "{{.RestartCount}}", RAY_CONTAINER) != "0",
        seconds=60,
        what="the head's container restarts",
    )
    cluster.converge()


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ("10002:19999", "worker-1: port 19999 (worker range): no answer"),
        ("6380", "worker-1: port 6380 (node_manager): no answer"),
    ],
)
def test_shut_ports_between_nodes_are_named(cluster, ports, words):
    rule = ["INPUT", "--protocol", "tcp", "--dport", ports, "!", "--in-interface", "lo", "--jump", "DROP"]
    cluster.on("worker-1", "iptables", "--append", *rule)
    try:
        text = failure_within(3 * 60, NotReadyError, cluster.converge)
    finally:
        cluster.on("worker-1", "iptables", "--delete", *rule)
    assert words in text
    assert "head →" in text
    assert "worker-2 →" in text


def test_a_head_that_a_new_worker_cannot_reach_is_told_before_ray_starts(cluster):
    cluster.on("worker-2", "docker", "rm", "--force", RAY_CONTAINER)
    rule = ["OUTPUT", "--protocol", "tcp", "--dport", "6379", "--jump", "DROP"]
    cluster.on("worker-2", "iptables", "--append", *rule)
    try:
        text = failure_within(3 * 60, StepError, cluster.converge)
    finally:
        cluster.on("worker-2", "iptables", "--delete", *rule)
    assert "worker-2: step ray_worker: the head's GCS cannot be reached" in text
    assert cluster.containers()["worker-2"] == ""
    cluster.converge()


def test_a_ray_port_open_to_the_world_is_refused(cluster):
    ec2 = cluster.lab.client("ec2")
    rule = cluster.lab.user_rule(6379)
    ec2.authorize_security_group_ingress(GroupId=cluster.lab.group_id, IpPermissions=[rule])
    try:
        until(lambda: opens(cluster), seconds=20, what="the rule is in force")
        text = failure_within(3 * 60, NotReadyError, cluster.converge)
    finally:
        ec2.revoke_security_group_ingress(GroupId=cluster.lab.group_id, IpPermissions=[rule])
    assert "head: port 6379 (gcs) is open from outside" in text
    until(lambda: not opens(cluster), seconds=20, what="the rule is gone")


def opens(cluster: Cluster) -> bool:
    return bool(open_from_outside([cluster.nodes[0]], Ports()))


def test_a_removed_worker_is_drained_and_the_others_left_alone(cluster):
    before = cluster.containers()
    cluster.converge(workers=1, previous=cluster.inputs(2))
    after = cluster.containers()
    assert after["worker-2"] == ""
    assert {name: after[name] for name in ("head", "worker-1")} == {name: before[name] for name in ("head", "worker-1")}
    assert set(saved_proof(cluster)["nodes"]) == {"head", "worker-1"}
    cluster.converge(workers=2, previous=cluster.inputs(1))
    assert {name: cluster.containers()[name] for name in ("head", "worker-1")} == {
        name: before[name] for name in ("head", "worker-1")
    }


def test_a_node_that_hangs_is_named_in_time(cluster):
    machine = cluster.lab.container(cluster.nodes[2].instance_id)
    assert machine is not None
    machine.pause()
    try:
        text = failure_within(90, RayrigError, cluster.converge)
    finally:
        machine.unpause()
    assert "worker-2" in text
    cluster.converge()


def test_a_rebooted_node_returns_without_help(cluster):
    before = cluster.containers()
    started = cluster.on("worker-1", "docker", "inspect", "--format", "{{.State.StartedAt}}", RAY_CONTAINER)
    machine = cluster.lab.container(cluster.nodes[1].instance_id)
    assert machine is not None
    machine.restart(timeout=20)
    cluster.converge()
    assert cluster.containers() == before
    assert started != cluster.on("worker-1", "docker", "inspect", "--format", "{{.State.StartedAt}}", RAY_CONTAINER)


def test_labels_tell_what_runs(cluster):
    shown = cluster.on(
        "head", "docker", "inspect", "--format", f'{{{{index .Config.Labels "{SPEC_LABEL}"}}}}', RAY_CONTAINER
    )
    assert shown.endswith("/cpus=0")
