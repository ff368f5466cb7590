"""Security groups hold between nodes and toward the person's side: traffic tried, before and after rules change."""

import socket
import time
from collections.abc import Callable

import pytest
from in_lab import LabWorld, until

CHANGE_SECONDS = 5
"""Generous for a loaded machine; what it takes is printed, about one second."""
GCS, DASHBOARD = 6379, 8265
TRY = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
except TimeoutError:
    sys.exit(7)
"""
SHUT = 7


@pytest.fixture(scope="module")
def pair(lab: LabWorld) -> tuple[str, str]:
    """Two nodes that listen on Ray's ports, on every address."""
    one, two = lab.launch(2)
    for node in (one, two):
        until(lambda: lab.host_key(node), seconds=60)  # noqa: B023 - waited for at once
        for port in (GCS, DASHBOARD):
            serve = ["systemd-run", "--unit", f"listen-{port}", "python3", "-m", "http.server", str(port)]
            assert lab.on(node, serve)[0] == 0
            listens = ["sh", "-c", f"ss -ltn | grep -q :{port}"]
            until(lambda: lab.on(node, listens)[0] == 0, seconds=20)  # noqa: B023 - waited for at once
    return one, two


def from_host(address: str, port: int, *, seconds: float = 0.5) -> bool:
    """Whether the person's machine gets through; a refusal would be an answer and is an error here: groups drop."""
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except TimeoutError:
        return False
    return True


def from_node(lab: LabWorld, node: str, address: str, port: int, *, seconds: float = 0.5) -> bool:
    code, output = lab.on(node, ["python3", "-c", TRY, address, str(port), str(seconds)])
    assert code in {0, SHUT}, output
    return code == 0


def after_change(happens: Callable[[], bool], what: str) -> None:
    print(f"{what}: in force after {until(happens, seconds=CHANGE_SECONDS, what=what):.1f} s")


def addresses(lab: LabWorld, node: str) -> tuple[str, str]:
    found = lab.instance(node)
    return found["PrivateIpAddress"], found["PublicIpAddress"]


@pytest.mark.parametrize("port", [GCS, DASHBOARD])
def test_rays_ports_are_shut_from_outside_and_open_inside(lab: LabWorld, pair: tuple[str, str], port: int):
    one, two = pair
    private, public = addresses(lab, one)
    assert from_host(public, 22)
    assert not from_host(public, port)
    assert not from_host(private, port)
    assert from_node(lab, two, private, port)
    assert from_node(lab, one, addresses(lab, two)[0], port)
    # As on EC2: who calls a public address comes from outside, and is no member of the group.
    assert not from_node(lab, two, public, port)


def test_this_host_is_no_exception_by_its_private_address(lab: LabWorld, pair: tuple[str, str]):
    assert not from_host(addresses(lab, pair[0])[0], 22)


def test_a_rule_opens_and_shuts_a_port_while_nodes_run(lab: LabWorld, pair: tuple[str, str]):
    ec2 = lab.client("ec2")
    _, public = addresses(lab, pair[0])
    rule = {"GroupId": lab.group_id, "IpPermissions": [lab.user_rule(DASHBOARD)]}
    assert not from_host(public, DASHBOARD)
    ec2.authorize_security_group_ingress(**rule)
    after_change(lambda: from_host(public, DASHBOARD, seconds=0.2), "opened")
    assert not from_host(public, GCS)
    ec2.revoke_security_group_ingress(**rule)
    after_change(lambda: not from_host(public, DASHBOARD, seconds=0.2), "shut")
    assert from_host(public, 22)


def test_members_lose_each_other_when_the_own_rule_goes(lab: LabWorld, pair: tuple[str, str]):
    ec2 = lab.client("ec2")
    private, _ = addresses(lab, pair[0])
    rule = {"GroupId": lab.group_id, "IpPermissions": [lab.own_rule()]}
    ec2.revoke_security_group_ingress(**rule)
    after_change(lambda: not from_node(lab, pair[1], private, GCS, seconds=0.2), "shut inside")
    ec2.authorize_security_group_ingress(**rule)
    after_change(lambda: from_node(lab, pair[1], private, GCS, seconds=0.2), "open inside")


def test_egress_is_a_rule_too_and_https_means_the_labs_services(lab: LabWorld, pair: tuple[str, str]):
    ec2 = lab.client("ec2")
    one, two = pair
    private, _ = addresses(lab, two)
    everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    endpoint = lab.world.endpoint_url.rpartition("/")[2].split(":")
    registry = lab.lab.registry_pull.split(":")
    services = [(endpoint[0], int(endpoint[1])), (registry[0], int(registry[1]))]

    def reached() -> list[bool]:
        return [from_node(lab, one, host, port, seconds=0.2) for host, port in services]

    assert reached() == [True, True]
    ec2.revoke_security_group_egress(GroupId=lab.group_id, IpPermissions=[everything])
    after_change(lambda: reached() == [False, False], "nothing goes out")
    assert not from_node(lab, one, private, GCS)
    # Metadata and names are always answered, as on EC2.
    assert from_node(lab, one, "169.254.169.254", 80)
    ec2.authorize_security_group_egress(GroupId=lab.group_id, IpPermissions=[https])
    after_change(lambda: reached() == [True, True], "HTTPS goes out")
    assert not from_node(lab, one, private, GCS)
    ec2.revoke_security_group_egress(GroupId=lab.group_id, IpPermissions=[https])
    ec2.authorize_security_group_egress(GroupId=lab.group_id, IpPermissions=[everything])
    after_change(lambda: from_node(lab, one, private, GCS, seconds=0.2), "everything goes out")


def test_the_rules_hold_from_the_first_moment_of_a_boot(lab: LabWorld, pair: tuple[str, str]):
    container = lab.container(pair[0])
    assert container is not None
    _, public = addresses(lab, pair[0])
    container.kill()
    container.start()
    end = time.monotonic() + 60
    # systemd's own answer is the end of the boot; until then the closed port must never answer, open or refused.
    while lab.on(pair[0], ["systemctl", "is-active", "ssh"])[1] != "active":
        assert time.monotonic() < end
        assert not from_host(public, GCS, seconds=0.2)
    until(lambda: from_host(public, 22), seconds=20)


def test_a_new_member_is_let_in_at_once(lab: LabWorld, pair: tuple[str, str]):
    (third,) = lab.launch()
    until(lambda: lab.host_key(third), seconds=60)
    assert from_node(lab, third, addresses(lab, pair[1])[0], GCS)
    lab.terminate(third, *pair)
