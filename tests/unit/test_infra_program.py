import ipaddress
import json
import re
from typing import Any

import pulumi
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from infra_recording import CLUSTER, DIGEST, PUBLIC_KEY, STACK, Recording, Registered, checked, record
from pulumi.output import Unknown

from contract import names
from contract.inventory import Inventory, Node, Ports
from contract.resources import (
    ClusterInputs,
    KeptBucketInputs,
    NodeInputs,
    RayFleetInputs,
    RayHeadInputs,
)

INSTANCE = "aws:ec2/instance:Instance"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
UNTAGGABLE = frozenset(
    {
        "aws:ec2/route:Route",
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "aws:iam/rolePolicy:RolePolicy",
    }
)
CUSTOM = {
    "rayrig:index:Cluster": ClusterInputs,
    "rayrig:index:KeptBucket": KeptBucketInputs,
    "rayrig:index:Node": NodeInputs,
    "rayrig:index:RayHead": RayHeadInputs,
    "rayrig:index:RayFleet": RayFleetInputs,
}
TYPES = st.sampled_from(["m7i.large", "g4dn.xlarge"])
SPECS = st.fixed_dictionaries(
    {
        "head_type": TYPES,
        "worker_type": TYPES,
        "workers": st.integers(0, 4),
        "access_cidr": st.sampled_from(["198.51.100.0/24", "203.0.113.7/32"]),
        "vpc_cidr": st.sampled_from(["10.0.0.0/16", "192.168.4.0/24", "100.64.0.0/20"]),
        "ttl_hours": st.floats(0.1, 72),
        "keep_results": st.booleans(),
        "tags": st.dictionaries(st.sampled_from(["team", "cost centre"]), st.sampled_from(["a", ""])),
    }
)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(checked())


def _children(recording: Recording) -> list[Registered]:
    return [r for r in recording.resources if r.custom and r.type != "pulumi:providers:aws"]


def _ports(rule: Registered) -> range:
    protocol = rule.inputs["ipProtocol"]
    return range(65536) if protocol == "-1" else range(int(rule.inputs["fromPort"]), int(rule.inputs["toPort"]) + 1)


# Each example registers some 40 resources; six cover the branches, the next run takes others.
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=SPECS, preview=st.booleans())
def test_every_spec_gives_a_closed_tagged_and_ordered_cluster(changes: dict[str, Any], preview: bool) -> None:
    recording = record(checked(**changes), preview=preview)
    _check_firewall(recording, changes["access_cidr"])
    _check_tags(recording, changes["tags"])
    _check_order(recording)
    _check_instances(recording, changes["workers"] + 1)
    _check_policies(recording)
    if preview:
        assert recording.inventory is None
    else:
        assert len(Inventory.model_validate(recording.inventory).nodes) == changes["workers"] + 1


def _check_firewall(recording: Recording, access_cidr: str) -> None:
    group = recording.one("aws:ec2/securityGroup:SecurityGroup")
    assert not {"ingress", "egress"} & set(group.inputs), "inline rules would fight the standalone ones"
    from_outside = [rule for rule in recording.of(INGRESS) if "cidrIpv4" in rule.inputs or "cidrIpv6" in rule.inputs]
    assert [(rule.inputs["cidrIpv4"], list(_ports(rule))) for rule in from_outside] == [(access_cidr, [22])]
    rays = {port for name, port in Ports().to_wire().items() if name not in {"minWorker", "maxWorker"}}
    for rule in from_outside:
        assert not rays & set(_ports(rule))
    inside = [rule for rule in recording.of(INGRESS) if rule not in from_outside]
    assert [rule.inputs["ipProtocol"] for rule in inside] == ["-1"]
    assert all("referencedSecurityGroupId" in rule.inputs for rule in inside)
    to_world = {int(r.inputs["toPort"]) for r in recording.of(EGRESS) if r.inputs.get("cidrIpv4") == "0.0.0.0/0"}
    assert to_world == {80, 443}
    assert len([r for r in recording.of(EGRESS) if "referencedSecurityGroupId" in r.inputs]) == 1
    for resource in (group, *recording.of(INGRESS), *recording.of(EGRESS)):
        # AWS refuses other characters, an apostrophe among them; neither Terraform nor moto says so.
        assert re.fullmatch(r"[a-zA-Z0-9 ._:/()#,@\[\]+=&;{}!$*-]{1,255}", resource.inputs["description"])


def _check_tags(recording: Recording, extra: dict[str, str]) -> None:
    for resource in _children(recording):
        if not resource.type.startswith("aws:") or resource.type in UNTAGGABLE:
            continue
        kinds = ["tags", "volumeTags"] if resource.type == INSTANCE else ["tags"]
        for tags in (resource.inputs[kind] for kind in kinds):
            assert {names.TAG_CLUSTER, names.TAG_STACK, names.TAG_OWNER, "Name", *extra} <= set(tags)
            assert tags[names.TAG_STACK] == STACK
            assert names.TAG_KEEP not in tags
            if resource.type == INSTANCE:
                assert {names.TAG_NODE, names.TAG_ROLE, names.TAG_DEADLINE} <= set(tags)


def _check_order(recording: Recording) -> None:
    cluster = recording.one("rayrig:index:Cluster")
    provider = recording.one("pulumi:providers:aws")
    instances = {instance.urn for instance in recording.of(INSTANCE)}
    for resource in _children(recording):
        if resource is not cluster:
            assert cluster.urn in resource.dependencies, f"{resource.name} may outlive the cluster"
        if resource.type.startswith("aws:"):
            assert resource.provider.startswith(provider.urn), f"{resource.name} is not tied to the account"
        if resource.type in {"rayrig:index:Node", "rayrig:index:RayHead", "rayrig:index:RayFleet"}:
            assert resource.deleted_with in instances, f"{resource.name} would need SSH at teardown"
        assert resource.type.startswith("rayrig:index:") or resource.parent
    needed = {r.urn for r in (*recording.of(INGRESS), *recording.of(EGRESS), recording.one("rayrig:index:KeptBucket"))}
    needed |= {recording.one(kind).urn for kind in UNTAGGABLE}
    for instance in recording.of(INSTANCE):
        assert needed <= instance.dependencies, "a booting node needs bucket, role and a way out"
    setups = {setup.urn for setup in recording.of("rayrig:index:Node")}
    for setup in recording.of("rayrig:index:Node"):
        assert not setups & setup.dependencies, "nodes are set up side by side"
    assert setups <= recording.one("rayrig:index:RayFleet").dependencies
    assert recording.one("rayrig:index:RayHead").urn in recording.one("rayrig:index:RayFleet").dependencies


def _check_instances(recording: Recording, count: int) -> None:
    assert len(recording.of(INSTANCE)) == len(recording.of("rayrig:index:Node")) == count
    for instance in recording.of(INSTANCE):
        given = instance.inputs
        assert given["metadataOptions"] == {
            "httpEndpoint": "enabled",
            "httpTokens": "required",
            "httpPutResponseHopLimit": 1,
            "instanceMetadataTags": "enabled",
        }
        disk = given["rootBlockDevice"]
        assert (disk["encrypted"], disk["volumeType"], disk["deleteOnTermination"]) == (True, "gp3", True)
        assert disk["throughput"] > 125
        assert disk["throughput"] <= disk["iops"] / 4
        assert given["instanceInitiatedShutdownBehavior"] == "terminate"
        assert given["ami"] == ("ami-gpu" if given["instanceType"] == "g4dn.xlarge" else "ami-cpu")
        assert instance.name.endswith("-gpu") == (given["instanceType"] == "g4dn.xlarge")
        assert instance.ignore_changes == ("ami", "userData")
        assert instance.replace_on_changes == ("instanceType",)
        assert instance.create_timeout


def _check_policies(recording: Recording) -> None:
    for kind, key in (("aws:iam/role:Role", "assumeRolePolicy"), ("aws:iam/rolePolicy:RolePolicy", "policy")):
        document = recording.one(kind).inputs[key]
        if isinstance(document, Unknown):
            continue
        for statement in json.loads(document)["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert not any("*" in action or action == "iam:PassRole" for action in actions)
            assert statement.get("Resource") not in {"*", "arn:aws:s3:::*"}


def test_custom_resources_get_exactly_what_the_contract_says(recording: Recording) -> None:
    for token, model in CUSTOM.items():
        for resource in recording.of(token):
            model.model_validate(resource.inputs)


def test_nodes_learn_their_host_keys_and_the_rest_gets_them(recording: Recording) -> None:
    assert all(Node.model_validate(n.inputs["node"]).host_key is None for n in recording.of("rayrig:index:Node"))
    fleet = RayFleetInputs.model_validate(recording.one("rayrig:index:RayFleet").inputs)
    assert [node.name for node in (fleet.head, *fleet.workers)] == ["head", "worker-1", "worker-2"]
    assert all(node.host_key for node in (fleet.head, *fleet.workers))


def test_inventory_is_whole(recording: Recording) -> None:
    inventory = Inventory.model_validate(recording.inventory)
    assert inventory.cluster_id == CLUSTER
    assert inventory.head.private_ip
    assert inventory.image.reference.endswith(DIGEST)
    assert inventory.image.versions == {"ray": "2.60.0"}
    assert inventory.storage.results_uri == f"s3://{inventory.storage.bucket}/runs/{STACK}"
    assert inventory.deadline.isoformat() == "2026-12-01T12:00:00+00:00"
    # m7i.large and twice g4dn.xlarge in eu-west-1, three addresses.
    assert inventory.price_usd_per_hour == pytest.approx(0.11235 + 2 * 0.587 + 3 * 0.005)


def test_only_the_nodes_own_host_key_can_be_published_and_only_once(recording: Recording) -> None:
    statements = json.loads(recording.one("aws:iam/rolePolicy:RolePolicy").inputs["policy"])["Statement"]
    bucket = "arn:aws:s3:::rayrig-results-123456789012-eu-west-1"
    writes = {s["Resource"]: s for s in statements if "s3:PutObject" in s["Action"]}
    assert set(writes) == {
        f"{bucket}/runs/{STACK}/*",
        f"{bucket}/clusters/{CLUSTER}/readiness*",
        f"{bucket}/clusters/{CLUSTER}/host-keys/${{aws:userid}}",
    }
    once = writes[f"{bucket}/clusters/{CLUSTER}/host-keys/${{aws:userid}}"]
    assert once["Condition"] == {"Null": {"s3:if-none-match": "false"}}
    (listing,) = [s for s in statements if "s3:ListBucket" in s["Action"]]
    prefixes = [f"runs/{STACK}", f"runs/{STACK}/*", f"clusters/{CLUSTER}/readiness*"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": prefixes}}
    assert not any(action.startswith("s3:DeleteObjectVersion") for s in statements for action in s["Action"])


def test_another_persons_up_changes_neither_owner_nor_key_nor_zone(recording: Recording) -> None:
    assert recording.one("rayrig:index:Cluster").ignore_changes == ("owner",)
    assert recording.one("aws:ec2/keyPair:KeyPair").ignore_changes == ("publicKey",)
    assert recording.one("aws:ec2/subnet:Subnet").ignore_changes == ("availabilityZone",)
    assert recording.one("aws:ec2/keyPair:KeyPair").inputs["publicKey"] == PUBLIC_KEY


def test_the_provider_is_tied_to_the_account() -> None:
    at_home = record(checked()).one("pulumi:providers:aws").inputs
    assert json.loads(at_home["allowedAccountIds"]) == ["123456789012"]
    assert at_home["maxRetries"] == "3"
    assert "endpoints" not in at_home


def test_in_rehearsal_every_service_in_use_goes_to_its_endpoint() -> None:
    url = "http://127.0.0.1:1234"
    recording = record(checked(url=url))
    (endpoints,) = json.loads(recording.one("pulumi:providers:aws").inputs["endpoints"])
    services = {"ec2": "ec2", "vpc": "ec2", "iam": "iam"}
    used = {services[r.type.split(":")[1].split("/")[0]] for r in recording.resources if r.type.startswith("aws:")}
    assert used <= set(endpoints)
    assert set(endpoints.values()) == {url}
    assert recording.one("rayrig:index:Cluster").inputs["home"]["endpoint"] == {"kind": "rehearsal", "url": url}
    assert url in recording.of(INSTANCE)[0].inputs["userData"]


def test_the_subnet_is_the_first_20_of_a_big_network_or_all_of_a_small_one() -> None:
    for vpc, subnet in (("10.77.0.0/16", "10.77.0.0/20"), ("192.168.4.0/24", "192.168.4.0/24")):
        recording = record(checked(vpc_cidr=vpc))
        assert recording.one("aws:ec2/subnet:Subnet").inputs["cidrBlock"] == subnet
        assert ipaddress.ip_network(subnet).subnet_of(ipaddress.ip_network(vpc))
        assert recording.one("aws:ec2/vpc:Vpc").inputs["enableDnsHostnames"] is True


def test_keep_results_false_reaches_the_bucket_with_this_stacks_prefixes_only() -> None:
    bucket = KeptBucketInputs.model_validate(record(checked(keep_results=False)).one("rayrig:index:KeptBucket").inputs)
    assert not bucket.keep
    assert bucket.prefixes == (f"runs/{STACK}/", f"clusters/{CLUSTER}/")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    for level in ("info", "warn", "error"):
        monkeypatch.setattr(pulumi.log, level, lambda text, level=level: lines.append(f"{level}: {text}"))
    return lines


def test_the_price_is_told_with_its_date(said: list[str]) -> None:
    record(checked(), preview=True)
    (line,) = said
    assert line.startswith("info: price: about $1.30 per hour, $15.62 for 12 hours")
    assert "2026-" in line


def test_an_unpriced_type_is_said_to_be_unpriced(said: list[str]) -> None:
    recording = record(checked(region="eu-south-2"))
    assert "unknown" in said[0]
    assert recording.inventory is not None
    assert recording.inventory["priceUsdPerHour"] is None
