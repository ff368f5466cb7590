"""One cluster from preview to receipt by the literal commands; the tests go in order, each on what the last left."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cycle_rig import Rig, comes, opens_from_here, opens_from_node, rig_in
from in_lab import LabWorld, until

from contract.inventory import Inventory
from provider.places import receipts_folder
from rehearsal.world.stack import make_stack

GCS, DASHBOARD, SSH = 6379, 8265, 22
TYPES = (
    "pulumi:providers:aws",
    "aws:ec2:Vpc",
    "aws:ec2:Subnet",
    "aws:ec2:InternetGateway",
    "aws:ec2:RouteTable",
    "aws:ec2:Route",
    "aws:ec2:RouteTableAssociation",
    "aws:ec2:SecurityGroup",
    "aws:vpc:SecurityGroupIngressRule",
    "aws:vpc:SecurityGroupEgressRule",
    "aws:ec2:KeyPair",
    "aws:iam:Role",
    "aws:iam:RolePolicy",
    "aws:iam:InstanceProfile",
    "aws:ec2:Instance",
    "rayrig:index:Cluster",
    "rayrig:index:KeptBucket",
    "rayrig:index:Node",
    "rayrig:index:RayHead",
    "rayrig:index:RayFleet",
)


@pytest.fixture(scope="module")
def rig(lab: LabWorld, pulumi_folder: Path) -> Iterator[Rig]:
    """A stack with one worker, nothing made yet; whatever the tests leave of it goes at the end."""
    made = rig_in(lab, pulumi_folder)
    make_stack(lab.place, lab.world.model_copy(update={"engine_bin": str(pulumi_folder)}))
    made.configure("workers", 1)
    try:
        yield made
        if made.resources():
            made.destroy()
    finally:
        made.end_instances()
        for receipt in receipts_folder().glob(f"rr-{lab.place.stack}-*.json"):
            receipt.unlink()


@pytest.fixture(scope="module")
def before(rig: Rig) -> frozenset[str]:
    """Everything in the AWS before the first command."""
    return rig.snapshot()


@pytest.fixture(scope="module")
def cluster(rig: Rig, before: frozenset[str]) -> Inventory:
    """The cluster, brought up once; its head stays the same throughout."""
    assert before
    rig.up().expect().within(60)
    return rig.inventory()


def test_a_preview_before_anything_exists_shows_everything(rig: Rig, before: frozenset[str]):
    done = rig.run("pulumi", "preview").expect()
    assert not done.messages
    for kind in TYPES:
        assert f" {kind} " in done.text, f"{kind} is not shown:\n{done.text}"
    assert rig.snapshot() == before


def test_up_gives_an_inventory_and_a_proof_of_all_nodes(rig: Rig, cluster: Inventory):
    assert {node.name for node in cluster.nodes} == {"head", "worker-1"}
    assert rig.proven(cluster) == {"head", "worker-1"}
    assert cluster.image.reference == rig.lab.lab.image
    assert cluster.image.versions["ray"]


def test_a_second_up_changes_nothing(rig: Rig, cluster: Inventory):
    containers = rig.ray_containers(cluster)
    rig.up().expect().within(10)
    assert rig.changes() == {}
    assert rig.inventory() == cluster
    assert rig.ray_containers(cluster) == containers


def test_only_ssh_is_open_and_a_change_of_the_rule_holds_at_once(rig: Rig, cluster: Inventory):
    head, worker = cluster.head, cluster.workers[0]
    assert head.public_ip is not None
    public = head.public_ip

    def inside_is_open_and_ray_shut_outside() -> None:
        assert opens_from_node(rig.lab, worker.instance_id, head.private_ip, GCS)
        assert opens_from_node(rig.lab, head.instance_id, worker.private_ip, cluster.ports.node_manager)
        assert not opens_from_here(public, GCS)
        assert not opens_from_here(public, DASHBOARD)
        # Who calls a public address comes from outside, a node of the cluster too.
        assert not opens_from_node(rig.lab, worker.instance_id, public, GCS)

    assert opens_from_here(public, SSH)
    inside_is_open_and_ray_shut_outside()
    mine = f"{rig.lab.lab.user_address}/32"
    another = rig.lab.lab.user_address.rpartition(".")[0] + ".250/32"
    try:
        rig.configure("accessCidr", another)
        rig.up().expect()
        assert rig.changes() == {"update": 1}
        comes(lambda: not opens_from_here(public, SSH), "SSH is shut")
        inside_is_open_and_ray_shut_outside()
        assert rig.inventory().access.cidr == another
    finally:
        rig.configure("accessCidr", mine)
    # Nobody of this side gets in now, so this `up` must not need SSH either.
    rig.up().expect()
    comes(lambda: opens_from_here(public, SSH), "SSH is open again")
    inside_is_open_and_ray_shut_outside()
    assert rig.inventory() == cluster


def test_one_more_worker_leaves_the_others_running(rig: Rig, cluster: Inventory):
    containers = rig.ray_containers(cluster)
    rig.configure("workers", 2)
    rig.up().expect().within(60)
    now = rig.inventory()
    assert {node.name for node in now.nodes} == {"head", "worker-1", "worker-2"}
    assert rig.proven(now) == {"head", "worker-1", "worker-2"}
    assert {**rig.ray_containers(now), **containers} == rig.ray_containers(now)


def test_a_worker_terminated_by_hand_is_back_and_proven(rig: Rig, cluster: Inventory):
    earlier = rig.inventory()
    containers = rig.ray_containers(earlier)
    victim = earlier.workers[0]
    rig.lab.terminate(victim.instance_id)
    rig.up().expect().within(60)
    now = rig.inventory()
    assert [node.name for node in now.nodes] == [node.name for node in earlier.nodes]
    assert now.workers[0].instance_id != victim.instance_id
    assert rig.proven(now) == {node.name for node in now.nodes}
    after = rig.ray_containers(now)
    assert {name for name, container in after.items() if containers[name] != container} == {victim.name}
    assert now.head == cluster.head


def test_one_worker_less_is_drained_then_removed(rig: Rig, cluster: Inventory):
    earlier = rig.inventory()
    leaving = earlier.workers[1]
    containers = rig.ray_containers(earlier)
    rig.configure("workers", 1)
    done = rig.up().expect().within(60)
    assert "worker-2: drain: no new work for this node" in done.text
    assert "worker-2: drain: Ray stopped" in done.text
    assert rig.lab.state(leaving.instance_id) == "terminated"
    until(lambda: rig.lab.container(leaving.instance_id) is None, seconds=20, what="worker-2 has no machine")
    now = rig.inventory()
    assert [node.name for node in now.nodes] == ["head", "worker-1"]
    assert rig.proven(now) == {"head", "worker-1"}
    after = rig.ray_containers(now)
    assert after == {name: containers[name] for name in after}
    assert now.head == cluster.head


def test_a_wrong_digest_fails_soon_and_readably_and_the_next_up_heals(rig: Rig, cluster: Inventory):
    now = rig.inventory()
    containers = rig.ray_containers(now)
    right = cluster.image.reference
    try:
        rig.configure("image", right.partition("@")[0] + "@sha256:" + "0" * 64)
        failed = rig.up().expect(1).within(60)
        for name in ("head", "worker-1"):
            (message,) = [text for text in failed.messages if text.startswith(f"{name}: ")]
            for words in ("step image", "the registry does not have this image", "manifest unknown", "Next: check"):
                assert words in message
        # What runs, runs on, and jobs still find it.
        assert rig.ray_containers(now) == containers
        assert rig.inventory() == now
        assert opens_from_node(rig.lab, now.workers[0].instance_id, now.head.private_ip, GCS)
    finally:
        rig.configure("image", right)
    rig.up().expect()
    assert rig.ray_containers(now) == containers
    assert rig.proven(now) == {"head", "worker-1"}
    rig.up().expect()
    assert rig.changes() == {}


def submit(rig: Rig, *settings: str, code: int) -> tuple[dict[str, object], str]:
    """`python -m jobs.submit ppo --set … --json`; its result and its log."""
    chosen = [part for setting in settings for part in ("--set", setting)]
    done = rig.run(sys.executable, "-m", "jobs.submit", "ppo", *chosen, "--json").expect(code)
    result: dict[str, object] = json.loads(done.output)
    return result, done.shown


def test_a_job_trains_on_the_workers_and_leaves_its_results(rig: Rig, cluster: Inventory):
    goal = 30
    result, log = submit(rig, f"target_return={goal}", "held_evaluations=1", "evaluate_every=1", code=0)
    assert result["state"] == "SUCCEEDED"
    reached = result["return"]
    assert isinstance(reached, int | float)
    assert reached >= goal
    run = str(result["run_uri"])
    assert run.startswith(f"{cluster.storage.results_uri}/ppo-")
    assert "worker-1" in log
    kept = rig.objects(run)
    assert {"config.json", "cluster.json", "summary.json"} <= set(kept)
    assert [key for key in kept if key.startswith("checkpoints/")]
    metrics = [json.loads(line) for line in rig.object(f"{run}/metrics.jsonl").splitlines()]
    assert metrics
    assert json.loads(rig.object(f"{run}/summary.json"))["return"] == reached


def test_a_job_that_fails_ends_with_its_drivers_code(rig: Rig, cluster: Inventory):
    assert cluster.nodes
    result, _ = submit(rig, "env=NoSuchEnvironment-v0", code=2)
    assert result["state"] == "FAILED"
    assert result["exit_code"] == 2
    assert "NoSuchEnvironment-v0" in str(result["error"])


def test_destroy_of_dead_nodes_leaves_nothing_but_the_kept_bucket(rig: Rig, cluster: Inventory, before: frozenset[str]):
    nodes = rig.inventory().nodes
    for node in nodes:
        container = rig.lab.container(node.instance_id)
        assert container is not None
        container.kill()
    for node in nodes:
        until(lambda: rig.lab.board()["nodes"][node.instance_id] == "dead", seconds=20, what=f"{node.name} is dead")  # noqa: B023
        assert rig.lab.state(node.instance_id) == "running"
    done = rig.destroy().expect().within(30)
    bucket = cluster.storage.bucket
    assert re.search(r"^ +left +0$", done.text, re.MULTILINE), done.text
    assert re.search(rf"^ +kept +s3://{bucket}: ", done.text, re.MULTILINE), done.text
    told = json.loads((receipts_folder() / f"{cluster.cluster_id}.json").read_text())
    assert told["left"] == []
    assert [kept["bucket"] for kept in told["kept"]] == [bucket]
    assert json.loads(rig.object(f"{cluster.storage.cluster_uri}/receipt.json")) == told
    assert rig.resources() == []
    assert rig.snapshot() - before == {f"bucket/{bucket}"}
    assert before <= rig.snapshot()
    for node in nodes:
        until(lambda: rig.lab.container(node.instance_id) is None, seconds=20, what=f"{node.name} has no machine")  # noqa: B023
