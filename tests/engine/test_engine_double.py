"""The double under the real engine: a cluster's life, what stands in the way, errors as a person reads them."""

import json

import httpx
import pytest
from engine_aws import client_of

from rehearsal.aws.request_log import read_requests

CLUSTER_SIZE = 18
"""Resources of programs/cluster.py with two nodes, stack and provider among them."""


def node_ids(stack, *names):
    return {name: stack.resources()[name]["id"] for name in names}


def left(ec2):
    """What an account holds beside what AWS itself puts there."""
    reservations = ec2.describe_instances()["Reservations"]
    return {
        "vpcs": [each["VpcId"] for each in ec2.describe_vpcs()["Vpcs"] if not each["IsDefault"]],
        "instances": [
            each["InstanceId"]
            for reservation in reservations
            for each in reservation["Instances"]
            if each["State"]["Name"] != "terminated"
        ],
        "volumes": ec2.describe_volumes()["Volumes"],
        "groups": [each for each in ec2.describe_security_groups()["SecurityGroups"] if each["GroupName"] != "default"],
        "keys": ec2.describe_key_pairs()["KeyPairs"],
        "interfaces": ec2.describe_network_interfaces()["NetworkInterfaces"],
        "gateways": ec2.describe_internet_gateways()["InternetGateways"],
    }


@pytest.fixture(scope="module")
def cluster(stack_of, tmp_path_factory):
    stack = stack_of(tmp_path_factory.mktemp("cluster"), "cluster.py")
    done = stack.up()
    assert done.code == 0, done.text
    assert done.counts == {"created": CLUSTER_SIZE}
    return stack


class TestCluster:
    """One cluster, from its first `up` to its `destroy`; each test leaves it as the next one finds it."""

    def test_a_launch_asks_for_what_moto_forgets(self, cluster, world):
        assert len(cluster.resources()) == CLUSTER_SIZE
        runs = [each["params"] for each in read_requests(world.request_log) if each["action"] == "RunInstances"]
        assert {each["BlockDeviceMapping.1.Ebs.Throughput"] for each in runs} == {"500"}
        assert {each["MetadataOptions.HttpTokens"] for each in runs} == {"required"}
        assert {each["InstanceInitiatedShutdownBehavior"] for each in runs} == {"terminate"}

    def test_a_second_up_changes_nothing(self, cluster):
        before = cluster.resources()
        done = cluster.run("up", "--yes")
        assert done.code == 0, done.text
        assert done.counts == {"unchanged": CLUSTER_SIZE}
        assert "warning" not in done.text
        after = cluster.resources()
        assert {name: each.get("outputs") for name, each in after.items()} == {
            name: each.get("outputs") for name, each in before.items()
        }

    def test_changes_in_place_keep_what_there_is(self, cluster, ec2):
        before = node_ids(cluster, "head", "worker-1", "subnet", "ssh")
        done = cluster.up(ssh_port=2222, subnet_tags={"shown": "yes"}, nodes=["head", "worker-1", "worker-2"])
        assert done.code == 0, done.text
        assert done.counts == {"created": 1, "updated": 2, "unchanged": CLUSTER_SIZE - 2}
        assert node_ids(cluster, *before) == before
        rules = ec2.describe_security_group_rules(SecurityGroupRuleIds=[before["ssh"]])["SecurityGroupRules"]
        assert (rules[0]["FromPort"], rules[0]["ToPort"]) == (2222, 2222)

    def test_what_vanished_comes_back_and_drift_is_put_right(self, cluster, ec2):
        ids = node_ids(cluster, "head", "worker-1", "worker-2", "own", "group", "subnet")
        ec2.terminate_instances(InstanceIds=[ids["worker-1"]])
        ec2.revoke_security_group_ingress(GroupId=ids["group"], SecurityGroupRuleIds=[ids["own"]])
        ec2.create_tags(Resources=[ids["subnet"]], Tags=[{"Key": "shown", "Value": "by hand"}])
        done = cluster.up()
        assert done.code == 0, done.text
        assert done.counts["created"] == 2
        assert done.counts["updated"] == 1
        after = node_ids(cluster, *ids)
        assert {name for name in ids if after[name] != ids[name]} == {"worker-1", "own"}
        assert cluster.resources()["subnet"]["outputs"]["tags"]["shown"] == "yes"

    def test_other_user_data_replaces_the_nodes(self, cluster):
        before = node_ids(cluster, "head", "worker-1", "group")
        done = cluster.up(user_data="#!/bin/sh\ntrue\n", nodes=["head", "worker-1"])
        assert done.code == 0, done.text
        assert done.counts == {"replaced": 2, "deleted": 1, "unchanged": CLUSTER_SIZE - 2}
        after = node_ids(cluster, *before)
        assert after["group"] == before["group"]
        assert {after["head"], after["worker-1"]}.isdisjoint(before.values())

    def test_destroy_leaves_nothing(self, cluster, ec2, world):
        done = cluster.destroy()
        assert done.code == 0, done.text
        assert done.counts == {"deleted": CLUSTER_SIZE}
        assert {kind: found for kind, found in left(ec2).items() if found} == {}
        assert client_of(world, "iam").list_roles()["Roles"] == []


NETWORK = {
    "vpc": ["aws:ec2/vpc:Vpc", {"cidrBlock": "10.78.0.0/16"}, []],
    "subnet": ["aws:ec2/subnet:Subnet", {"vpcId": "@vpc", "cidrBlock": "10.78.0.0/20"}, []],
}


@pytest.fixture
def stack(stack_of, tmp_path):
    return stack_of(tmp_path, "resources.py")


def test_an_orphan_in_the_way_is_named_and_the_next_destroy_passes(stack, ec2):
    assert stack.up(resources=NETWORK).code == 0
    orphan = ec2.run_instances(
        ImageId="ami-0a11ce0024040001",
        InstanceType="m7i.large",
        MinCount=1,
        MaxCount=1,
        SubnetId=stack.resources()["subnet"]["id"],
    )["Instances"][0]["InstanceId"]
    done = stack.destroy()
    assert done.code != 0
    assert f"held by instance {orphan}" in done.text
    assert "Traceback" not in done.text
    ec2.terminate_instances(InstanceIds=[orphan])
    again = stack.destroy()
    assert again.code == 0, again.text


def test_a_refusal_reads_as_one_paragraph_and_what_was_half_made_is_finished(stack, world):
    fault = {"action": "ModifyVpcAttribute", "code": "RequestLimitReached", "message": "Too many for now.", "times": 1}
    httpx.post(f"{world.url}/rayrig-rehearsal/faults", content=json.dumps(fault), trust_env=False).raise_for_status()
    resources = {"vpc": ["aws:ec2/vpc:Vpc", {"cidrBlock": "10.79.0.0/16", "enableDnsHostnames": True}, []]}
    done = stack.up(resources=resources)
    assert done.code != 0
    assert "AWS refused modify_vpc_attribute. An error occurred (RequestLimitReached)" in done.text
    assert "Too many for now." in done.text
    for noise in ("Traceback", "Unexpected", 'File "', "rpc error", "grpc"):
        assert noise not in done.text
    kept = stack.resources()["vpc"]["id"]
    again = stack.up()
    assert again.code == 0, again.text
    assert stack.resources()["vpc"]["id"] == kept
    assert stack.resources()["vpc"]["outputs"]["enableDnsHostnames"] is True
    assert stack.destroy().code == 0


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (["aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "tag": {}}, []], "did you mean tags?"),
        (["aws:efs/fileSystem:FileSystem", {}, []], "docs/how-to/add-an-aws-type.md"),
    ],
    ids=["property", "type"],
)
def test_a_mistake_fails_the_preview_in_plain_words(stack, resource, text):
    stack.want(resources={"wrong": resource})
    done = stack.run("preview")
    assert done.code != 0
    assert text in done.text
    assert "Traceback" not in done.text
