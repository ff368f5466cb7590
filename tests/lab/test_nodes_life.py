"""Nodes follow their instances: boot, power-off, death, stop and start, reboot, termination."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from in_lab import LabWorld, until

from rehearsal.images import nodes_dir
from rehearsal.nodes.containers import CGROUPS
from remote import connect, connect_until

BOOT_SECONDS = 60
"""Generous: several suites may share two cores; what a boot takes is printed."""


def ready_seconds(lab: LabWorld, instance_id: str, *, since: float) -> float:
    target = lab.target(instance_id, seconds=BOOT_SECONDS)
    with connect_until(target, timeout_seconds=BOOT_SECONDS, login=lab.login()) as connection:
        connection.run(["cloud-init", "status", "--wait"], timeout_seconds=BOOT_SECONDS)
        until(lambda: connection.run(["docker", "info"], timeout_seconds=20, check=False).ok, seconds=BOOT_SECONDS)
    return time.monotonic() - since


@pytest.fixture(scope="module")
def trio(lab: LabWorld) -> list[str]:
    """Three nodes launched at once, ready: SSH with the published host key, cloud-init done, Docker there."""
    since = time.monotonic()
    ids = lab.launch(3)
    with ThreadPoolExecutor() as pool:
        seconds = list(pool.map(lambda i: ready_seconds(lab, i, since=since), ids))
    print("three at once, RunInstances to SSH, cloud-init and Docker:", [f"{s:.1f} s" for s in seconds])
    return ids


def test_a_node_is_its_instance(lab: LabWorld, trio: list[str]):
    found = lab.instance(trio[0])
    with connect(lab.target(trio[0], seconds=5), login=lab.login()) as connection:

        def told(*argv: str) -> str:
            return connection.run(argv, timeout_seconds=20).stdout.strip()

        assert told("hostname") == f"ip-{found['PrivateIpAddress'].replace('.', '-')}"
        assert told("cat", "/var/lib/lab-marker") == "done"
        assert f"src {found['PrivateIpAddress']}" in told("ip", "route", "get", lab.lab.bridge_address)
        # EC2 shows a machine no trace of its public address.
        assert found["PublicIpAddress"] not in told("ip", "-4", "address", "show", "dev", "eth0")
        assert found["PublicIpAddress"] not in told("hostname", "-I")
        assert told("systemctl", "is-system-running") == "running"
        pulled = connection.run(["docker", "pull", "--quiet", lab.lab.image], timeout_seconds=60)
        assert pulled.stdout.strip() == lab.lab.image


def test_a_node_that_powers_itself_off_is_terminated_and_gone(lab: LabWorld, trio: list[str]):
    (spare,) = lab.launch()
    until(lambda: lab.host_key(spare), seconds=BOOT_SECONDS)
    assert (nodes_dir(lab.world.world_id) / spare).is_dir()
    lab.on(spare, ["systemctl", "poweroff"])
    until(lambda: lab.state(spare) == "terminated", seconds=30, what="terminated in EC2's words")
    until(lambda: lab.container(spare) is None, seconds=30, what="no container")
    until(lambda: not (nodes_dir(lab.world.world_id) / spare).exists(), seconds=30, what="no folder")
    assert all(lab.board()["nodes"][i] == "up" for i in trio)


def test_a_killed_node_is_dead_but_goes_on_running_in_ec2s_words_and_a_restart_heals_it(lab: LabWorld, trio: list[str]):
    victim = trio[1]
    container = lab.container(victim)
    assert container is not None
    container.kill()
    until(lambda: lab.board()["nodes"][victim] == "dead", seconds=20, what="dead in the status")
    assert lab.state(victim) == "running"
    container.start()
    until(lambda: lab.board()["nodes"][victim] == "up", seconds=20)
    with connect_until(lab.target(victim, seconds=5), timeout_seconds=BOOT_SECONDS, login=lab.login()) as connection:
        assert connection.run(["cat", "/var/lib/lab-marker"], timeout_seconds=20).stdout.strip() == "done"


def started_at(lab: LabWorld, instance_id: str) -> tuple[str, bool]:
    container = lab.container(instance_id)
    assert container is not None
    return container.attrs["State"]["StartedAt"], container.status == "running"


def test_stop_and_start_and_two_kinds_of_reboot(lab: LabWorld, trio: list[str]):
    node, ec2 = trio[2], lab.client("ec2")
    ec2.stop_instances(InstanceIds=[node])
    until(lambda: not started_at(lab, node)[1], seconds=20, what="the machine stands still")
    assert lab.state(node) == "stopped"
    ec2.start_instances(InstanceIds=[node])
    until(lambda: started_at(lab, node)[1], seconds=20, what="the machine runs again")
    for reboot in (
        lambda: ec2.reboot_instances(InstanceIds=[node]),
        lambda: lab.on(node, ["systemctl", "reboot"]),
    ):
        until(lambda: lab.on(node, ["systemctl", "is-active", "ssh"])[1] == "active", seconds=BOOT_SECONDS)
        before, _ = started_at(lab, node)
        reboot()
        until(lambda: started_at(lab, node)[0] > before and started_at(lab, node)[1], seconds=30, what="booted again")  # noqa: B023
    assert lab.state(node) == "running"
    with connect_until(lab.target(node, seconds=5), timeout_seconds=BOOT_SECONDS, login=lab.login()) as connection:
        assert connection.run(["cat", "/var/lib/lab-marker"], timeout_seconds=20).stdout.strip() == "done"


def test_an_instance_outside_the_labs_network_is_told_as_a_problem(lab: LabWorld):
    ec2 = lab.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="172.31.240.0/24")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="172.31.240.0/28")["Subnet"]["SubnetId"]
    (lost,) = lab.launch(SubnetId=subnet, SecurityGroupIds=[])
    until(lambda: "outside the lab's network" in lab.board()["problems"].get(lost, ""), seconds=20)
    lab.terminate(lost)
    until(lambda: lost not in lab.board()["problems"], seconds=20)


def test_terminated_instances_are_gone_soon(lab: LabWorld, trio: list[str]):
    code, output = lab.on(trio[0], ["docker", "run", "--detach", "--network=host", lab.lab.image, "sleep", "600"])
    inner = output.splitlines()[-1]
    assert (code, len(inner)) == (0, 64), output
    assert list(CGROUPS.glob(f"**/docker/{inner}"))
    since = time.monotonic()
    lab.terminate(*trio)
    print(f"three at once, TerminateInstances to no container: {time.monotonic() - since:.1f} s")
    until(lambda: not any((nodes_dir(lab.world.world_id) / i).exists() for i in trio), seconds=30)
    until(lambda: lab.board() == {"nodes": {}, "problems": {}}, seconds=20, what="nothing in the status")
    assert not list(CGROUPS.glob(f"**/docker/{inner}")), "control groups of the node's own containers"
