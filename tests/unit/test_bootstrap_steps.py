"""What the steps plan from facts, and what a person reads when facts do not fit."""

import os
import socket
import subprocess
from datetime import UTC, datetime

import pytest
from bootstrap_samples import HOME, IMAGE, facts, gpu_facts, node, ray_spec

from bootstrap.converge import _compare_versions, _leaving, _parallel, _Visit
from bootstrap.facts import TokenFacts, image_paths, parse_facts
from bootstrap.progress import NodeLog
from bootstrap.readiness import ProofInputs, open_from_outside, port_plan
from bootstrap.repair import fleet_inputs
from bootstrap.steps import docker, nvidia_toolkit
from bootstrap.steps.nvidia_toolkit import PACKAGES, check_gpus, install_commands
from bootstrap.steps.ray import ensure_container
from bootstrap.steps.token import fingerprint, is_safe
from contract.errors import ConfigError, StepError
from contract.inventory import Access, HealthCheck, Image, Inventory, Ports, Storage
from contract.resources import RayFleetInputs

TOOLKIT = dict.fromkeys(PACKAGES, "1.18.0-1")


def log():
    return NodeLog(node="worker-1", report=lambda _: None)


def test_docker_that_runs_is_left_alone():
    assert docker.plan(facts()) == []
    assert docker.plan(facts(docker={"installed": True, "running": False})) == [
        ["systemctl", "enable", "--now", "docker"]
    ]


def test_missing_docker_waits_for_the_package_lock_and_never_kills_dpkg():
    commands = docker.plan(facts(docker={"installed": False, "running": False}))
    flat = [word for command in commands for word in command]
    assert "--option=DPkg::Lock::Timeout=300" in flat
    assert "docker.io" in flat
    assert not {"kill", "rm", "killall", "fuser"} & set(flat)


APT_GET = """#!/bin/sh
if [ -e "$0.held" ]; then rm "$0.held"; echo "E: Could not get lock /var/lib/apt/lists/lock." >&2; exit 100; fi
if [ -e "$0.broken" ]; then echo "E: Unable to locate package docker.io" >&2; exit 100; fi
echo "done: $*"
"""


def test_apts_locks_that_its_option_does_not_cover_are_waited_for_and_other_errors_told_at_once(tmp_path):
    stub = tmp_path / "apt-get"
    stub.write_text(APT_GET)
    stub.chmod(0o755)
    held, broken = tmp_path / "apt-get.held", tmp_path / "apt-get.broken"

    def run():
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(
            docker.apt_get("update"), env=environment, capture_output=True, text=True, timeout=20, check=False
        )

    held.touch()
    waited = run()
    assert (waited.returncode, waited.stdout.split()[-1]) == (0, "update")
    broken.touch()
    failed = run()
    assert (failed.returncode, failed.stderr) == (100, "E: Unable to locate package docker.io\n")


def test_no_gpu_no_toolkit():
    assert nvidia_toolkit.plan(facts(), "1.18.0-1").empty


def test_a_machine_image_that_brings_the_toolkit_needs_holds_only():
    ready = gpu_facts(
        toolkit={"packages": TOOLKIT, "held": list(PACKAGES), "runtime_configured": True},
        docker__runtimes=["nvidia", "runc"],
    )
    assert nvidia_toolkit.plan(ready, None).empty
    unheld = gpu_facts(
        toolkit={"packages": TOOLKIT, "held": [], "runtime_configured": True}, docker__runtimes=["nvidia", "runc"]
    )
    plan = nvidia_toolkit.plan(unheld, None)
    assert (plan.install, plan.hold, plan.configure) == ((), PACKAGES, False)


def test_all_four_packages_move_together():
    mixed = {**TOOLKIT, "libnvidia-container1": "1.17.0-1"}
    plan = nvidia_toolkit.plan(gpu_facts(toolkit={"packages": mixed, "held": [], "runtime_configured": False}), None)
    assert plan.install == tuple(f"{name}=1.18.0-1" for name in PACKAGES)
    assert plan.hold == PACKAGES
    assert plan.configure
    update, install = install_commands(plan)
    assert "--option=Dir::Etc::sourceparts=-" in update
    assert set(plan.install) <= set(install)


def test_a_configured_runtime_is_not_configured_again():
    plan = nvidia_toolkit.plan(
        gpu_facts(toolkit={"packages": TOOLKIT, "held": list(PACKAGES), "runtime_configured": False}), None
    )
    assert plan.configure
    plan = nvidia_toolkit.plan(
        gpu_facts(toolkit={"packages": TOOLKIT, "held": list(PACKAGES), "runtime_configured": True}), None
    )
    assert not plan.configure


@pytest.mark.parametrize(
    ("on_bus", "names", "layer"),
    [(3, 4, "the PCI bus shows 3"), (4, 0, "nvidia-smi shows 0"), (4, 8, "nvidia-smi shows 8")],
)
def test_a_gpu_count_that_differs_names_node_and_layer(on_bus, names, layer):
    seen = gpu_facts(gpus__on_bus=on_bus, gpus__names=["GPU"] * names)
    with pytest.raises(StepError, match=layer) as caught:
        check_gpus(log(), seen, expected=4)
    assert caught.value.where == "worker-1"
    check_gpus(log(), gpu_facts(4), expected=4)


def test_a_token_file_that_others_could_read_is_not_safe():
    good = TokenFacts(mode="0o600", uid=1000, fingerprint="x")
    assert is_safe(good)
    assert not is_safe(None)
    assert not is_safe(good.model_copy(update={"mode": "0o644"}))
    assert not is_safe(good.model_copy(update={"uid": 0}))


def test_a_fingerprint_does_not_show_the_token():
    token = "5f" * 32
    assert fingerprint(token) == fingerprint(token + "\n")
    assert len(fingerprint(token)) == 16
    assert fingerprint(token) not in token


def test_paths_belong_to_one_digest():
    assert image_paths(IMAGE) != image_paths(IMAGE.replace("ab", "cd"))
    assert image_paths(IMAGE) == image_paths(IMAGE.replace("198.18.77.1:5000", "elsewhere"))


def test_facts_that_do_not_fit_are_an_error_that_names_the_node():
    with pytest.raises(StepError, match="does not fit"):
        parse_facts({"system": {}}, where="worker-1")


def visit(name, versions):
    return _Visit(node=node(name), connection=None, log=log(), facts=facts(), versions=versions)


def test_versions_are_compared_before_anything_joins():
    same = {"ray": "2.60.0", "python": "3.13.5", "torch": "2.6.0"}
    _compare_versions([visit("head", same), visit("worker-1", same)])
    with pytest.raises(StepError, match=r"python 3\.13\.4 here, 3\.13\.5 on head"):
        _compare_versions([visit("head", same), visit("worker-1", {**same, "python": "3.13.4"})])


def fleet(*workers):
    storage = Storage(bucket="b", results_uri="s3://b/runs/s", cluster_uri="s3://b/clusters/c")
    return RayFleetInputs(
        home=HOME,
        cluster_id="c-1",
        head=node("head", ip="10.77.0.11", instance="i-0"),
        user="ubuntu",
        image=IMAGE,
        ports=Ports(),
        health_check=HealthCheck(),
        storage=storage,
        workers=workers,
    )


def test_who_leaves_is_told_by_instance_not_by_name():
    one, two = node("worker-1", instance="i-1"), node("worker-2", instance="i-2", ip="10.77.0.13")
    assert _leaving(fleet(one, two), None) == []
    assert _leaving(fleet(one), fleet(one, two)) == [two]
    reborn = node("worker-2", instance="i-3", ip="10.77.0.14")
    assert _leaving(fleet(one, reborn), fleet(one, two)) == [two]


def test_several_failing_nodes_are_all_named():
    def work(name):
        if name != "head":
            raise StepError("step image: no such image", where=name)
        return name

    with pytest.raises(StepError, match="worker-1: step image"):
        _parallel(work, ["head", "worker-1"])
    with pytest.raises(StepError, match=r"2 nodes failed(.|\n)*worker-1(.|\n)*worker-2"):
        _parallel(work, ["head", "worker-1", "worker-2"])
    assert _parallel(work, ["head"]) == ["head"]


def test_errors_inside_a_stage_name_node_and_stage():
    with pytest.raises(StepError, match="worker-1: step image: odd"), log().guarded("image"):
        raise ConfigError("odd", where="x", why="because")


def proof_inputs(*nodes):
    storage = Storage(bucket="b", results_uri="s3://b/runs/s", cluster_uri="s3://b/clusters/c")
    return ProofInputs(
        cluster_id="c-1",
        nodes=nodes,
        ports=Ports(),
        health_check=HealthCheck(),
        storage=storage,
        shm_bytes={},
        gpus_by_driver={},
    )


def test_the_port_plan_covers_both_directions_and_every_pinned_port():
    head, one, two = node("head", ip="10.77.0.11"), node("worker-1"), node("worker-2", ip="10.77.0.13")
    inputs = proof_inputs(head, one, two)
    from_worker = port_plan(one, inputs)
    assert {(peer, name) for peer, name, _ in from_worker if name in {"gcs", "object_manager"}} == {
        ("head", "gcs"),
        ("head", "object_manager"),
        ("worker-2", "object_manager"),
    }
    assert {peer for peer, _, _ in port_plan(head, inputs)} == {"worker-1", "worker-2"}
    named = {name for _, name, _ in from_worker}
    loopback_only = {"dashboard", "min_worker", "max_worker"}
    assert named == (set(Ports.model_fields) - loopback_only) | {"worker range"}


def test_a_ray_port_open_from_outside_is_found():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ports = Ports(gcs=listener.getsockname()[1])
        open_node = node("head", public="127.0.0.1")
        found = open_from_outside([open_node], ports)
        assert len(found) == 1
        assert "head: port" in found[0]
        assert open_from_outside([node("head")], ports) == []


def test_a_strangers_program_on_rays_ports_is_named_before_anything_starts():
    taken = facts(system__listening_ports=[22, 8265])
    with pytest.raises(StepError, match=r"8265 \(dashboard\)"):
        ensure_container(None, log(), step="ray_worker", node=node(), spec=ray_spec(), facts=taken, cpu_count=2)


def test_a_node_without_its_address_is_refused():
    with pytest.raises(StepError, match=r"does not have its address 10\.9\.9\.9"):
        ensure_container(
            None, log(), step="ray_worker", node=node(ip="10.9.9.9"), spec=ray_spec(), facts=facts(), cpu_count=2
        )


def test_an_inventory_is_enough_to_repair():
    wanted = fleet(node("worker-1"))
    inventory = Inventory(
        cluster_id=wanted.cluster_id,
        stack="s",
        account_id=wanted.home.account_id,
        region=wanted.home.region,
        availability_zone="eu-west-1a",
        endpoint=wanted.home.endpoint,
        nodes=(wanted.head, *wanted.workers),
        access=Access(user="ubuntu"),
        image=Image(reference=wanted.image),
        storage=wanted.storage,
        deadline=datetime(2030, 1, 1, tzinfo=UTC),
    )
    assert fleet_inputs(inventory) == wanted
