"""Each simulated type at AWS: what it makes, that a second look shows no change, what changes in place, what ends."""

import base64

import pytest
from google.protobuf import empty_pb2
from in_double import POLICY, TRUST, RefusedError, ask, aws, client, double_of, instance_inputs, network
from pulumi.runtime.proto import provider_pb2

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl somebody"
INSTANCE = "aws:ec2/instance:Instance"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
NONE, SOME = provider_pb2.DiffResponse.DIFF_NONE, provider_pb2.DiffResponse.DIFF_SOME


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with aws(tmp_path_factory.mktemp("aws") / "requests.jsonl") as server:
        yield server


@pytest.fixture(scope="module")
def double(server):
    with double_of(server) as double:
        yield double


@pytest.fixture(scope="module")
def net(double):
    return network(double)


@pytest.fixture(scope="module")
def ec2(server):
    return client(server, "ec2")


def stable(double, made, inputs):
    """A second look and a second run of the same program change nothing."""
    seen = double.read(made)
    assert (seen.state, seen.inputs) == (made.state, made.inputs)
    assert double.diff(seen, inputs).changes == NONE


def gone(double, made):
    double.delete(made)
    assert double.read(made) is None
    double.delete(made)


def changed(double, made, inputs):
    """The difference in short: paths that update, and paths that replace."""
    answer = double.diff(made, inputs)
    return set(answer.detailedDiff) - set(answer.replaces), set(answer.replaces)


def test_vpc(double, ec2):
    inputs = {"cidrBlock": "10.8.0.0/16", "enableDnsHostnames": True, "tags": {"a": "b"}}
    made = double.create("aws:ec2/vpc:Vpc", inputs)
    assert made.state["enableDnsHostnames"] is True
    assert made.state["arn"].endswith(f":vpc/{made.id}")
    assert made.state["tagsAll"] == {"a": "b"}
    for name in ("defaultSecurityGroupId", "mainRouteTableId", "defaultNetworkAclId"):
        assert made.state[name]
    stable(double, made, inputs)
    assert changed(double, made, inputs | {"cidrBlock": "10.9.0.0/16"}) == (set(), {"cidrBlock"})
    assert changed(double, made, {"cidrBlock": "10.8.0.0/16"}) == ({"tags"}, set())
    news = inputs | {"enableDnsSupport": False, "tags": {"c": "d"}}
    assert changed(double, made, news) == ({"enableDnsSupport", "tags"}, set())
    updated = double.update(made, news)
    assert updated.state["enableDnsSupport"] is False
    assert updated.state["tagsAll"] == {"c": "d"}
    stable(double, updated, news)
    gone(double, updated)
    assert ec2.describe_vpcs(Filters=[{"Name": "cidr", "Values": ["10.8.0.0/16"]}])["Vpcs"] == []


def test_subnet(double, net):
    inputs = {"vpcId": net["vpc"].id, "cidrBlock": "10.77.16.0/20", "availabilityZone": "eu-west-1b"}
    made = double.create("aws:ec2/subnet:Subnet", inputs)
    assert made.state["mapPublicIpOnLaunch"] is False
    stable(double, made, inputs)
    assert changed(double, made, inputs | {"availabilityZone": "eu-west-1c"}) == (set(), {"availabilityZone"})
    updated = double.update(made, inputs | {"mapPublicIpOnLaunch": True})
    assert updated.state["mapPublicIpOnLaunch"] is True
    stable(double, updated, inputs | {"mapPublicIpOnLaunch": True})
    gone(double, updated)


def test_gateway_and_routes(double):
    vpc = double.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.10.0.0/16"})
    subnet = double.create("aws:ec2/subnet:Subnet", {"vpcId": vpc.id, "cidrBlock": "10.10.0.0/20"})
    gateway = double.create("aws:ec2/internetGateway:InternetGateway", {"vpcId": vpc.id})
    stable(double, gateway, {"vpcId": vpc.id})
    other = double.create("aws:ec2/internetGateway:InternetGateway", {})
    table = double.create("aws:ec2/routeTable:RouteTable", {"vpcId": vpc.id, "tags": {"a": "b"}})
    stable(double, table, {"vpcId": vpc.id, "tags": {"a": "b"}})
    route_inputs = {"routeTableId": table.id, "destinationCidrBlock": "0.0.0.0/0", "gatewayId": gateway.id}
    route = double.create("aws:ec2/route:Route", route_inputs)
    assert route.id.startswith(f"r-{table.id}")
    stable(double, route, route_inputs)
    assert changed(double, route, route_inputs | {"gatewayId": other.id}) == ({"gatewayId"}, set())
    link_inputs = {"routeTableId": table.id, "subnetId": subnet.id}
    link = double.create("aws:ec2/routeTableAssociation:RouteTableAssociation", link_inputs)
    stable(double, link, link_inputs)
    second = double.create("aws:ec2/routeTable:RouteTable", {"vpcId": vpc.id})
    moved = double.update(link, link_inputs | {"routeTableId": second.id})
    assert moved.state["routeTableId"] == second.id
    stable(double, moved, link_inputs | {"routeTableId": second.id})
    with pytest.raises(RefusedError, match=f"route table {second.id} is still in use .* held by subnet {subnet.id}"):
        double.delete(second, timeout=0.3)
    for made in (moved, route, second, table, gateway, other, subnet, vpc):
        gone(double, made)


def test_security_group_has_no_way_out_of_its_own(double, net, ec2):
    inputs = {"vpcId": net["vpc"].id, "description": "cluster"}
    made = double.create("aws:ec2/securityGroup:SecurityGroup", inputs, name="cluster")
    assert made.state["name"].startswith("cluster-")
    stable(double, made, inputs)
    group = ec2.describe_security_groups(GroupIds=[made.id])["SecurityGroups"][0]
    assert group["IpPermissionsEgress"] == []
    assert changed(double, made, inputs | {"description": "other"}) == (set(), {"description"})
    named = double.diff(made, inputs | {"name": made.state["name"], "description": "other"})
    assert named.deleteBeforeReplace
    gone(double, made)


@pytest.mark.parametrize("token", [INGRESS, EGRESS])
def test_security_group_rules(double, net, token):
    group = net["group"].id
    one = {"securityGroupId": group, "ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "cidrIpv4": "10.0.0.0/8"}
    one |= {"description": "ssh", "tags": {"a": "b"}}
    made = double.create(token, one)
    stable(double, made, one)
    own = {"securityGroupId": group, "ipProtocol": "tcp", "fromPort": 0, "toPort": 65535}
    own |= {"referencedSecurityGroupId": group, "description": "cluster"}
    assert changed(double, made, own | {"tags": {"a": "b"}})[1] == set()
    updated = double.update(made, own | {"tags": {"a": "b"}})
    assert updated.state["referencedSecurityGroupId"] == group
    assert "cidrIpv4" not in updated.state
    stable(double, updated, own | {"tags": {"a": "b"}})
    every = {"securityGroupId": group, "ipProtocol": "-1", "cidrIpv4": "0.0.0.0/0"}
    wide = double.update(updated, every)
    stable(double, wide, every)
    assert changed(double, wide, every | {"securityGroupId": "sg-1"}) == (set(), {"securityGroupId"})
    with pytest.raises(RefusedError, match=r"InvalidPermission.Duplicate"):
        double.create(token, every)
    gone(double, wide)


def test_key_pair(double):
    inputs = {"publicKey": KEY, "tags": {"a": "b"}}
    made = double.create("aws:ec2/keyPair:KeyPair", inputs, name="key")
    assert made.id == made.state["keyName"]
    assert made.state["fingerprint"]
    stable(double, made, inputs)
    assert changed(double, made, {"publicKey": KEY.replace("9GKJl", "9GKJm"), "tags": {"a": "b"}})[1] == {"publicKey"}
    updated = double.update(made, {"publicKey": KEY, "tags": {"c": "d"}})
    assert updated.state["tagsAll"] == {"c": "d"}
    gone(double, updated)


def test_role_policy_and_profile(double):
    inputs = {"assumeRolePolicy": TRUST, "description": "nodes", "tags": {"a": "b"}}
    role = double.create("aws:iam/role:Role", inputs, name="role")
    assert role.state["uniqueId"].startswith("AROA")
    assert role.state["arn"].endswith(f":role/{role.id}")
    stable(double, role, inputs)
    spaced = inputs | {"assumeRolePolicy": TRUST.replace(": ", ":  ")}
    assert changed(double, role, spaced) == (set(), set())
    updated = double.update(role, inputs | {"description": "other", "maxSessionDuration": 7200, "tags": {}})
    assert (updated.state["description"], updated.state["maxSessionDuration"]) == ("other", 7200)
    policy_inputs = {"role": role.id, "policy": POLICY}
    policy = double.create("aws:iam/rolePolicy:RolePolicy", policy_inputs, name="reads")
    stable(double, policy, policy_inputs)
    wider = policy_inputs | {"policy": POLICY.replace("s3:GetObject", "s3:PutObject")}
    assert changed(double, policy, wider) == ({"policy"}, set())
    stable(double, double.update(policy, wider), wider)
    profile = double.create("aws:iam/instanceProfile:InstanceProfile", {"role": role.id}, name="profile")
    stable(double, profile, {"role": role.id})
    with pytest.raises(RefusedError, match=f"role {role.id} still has policies. inline policy {policy.state['name']}"):
        double.delete(updated)
    for made in (profile, policy, updated):
        gone(double, made)


def test_instance_makes_what_was_asked_for(double, net, ec2):
    inputs = instance_inputs(
        net,
        userData="#!/bin/sh\ntrue\n",
        tags={"Name": "head"},
        volumeTags={"of": "head"},
        associatePublicIpAddress=True,
    )
    made = double.create(INSTANCE, inputs)
    state = made.state
    assert (state["instanceState"], state["availabilityZone"]) == ("running", "eu-west-1a")
    assert state["privateIp"].startswith("10.77.0.")
    assert state["publicIp"].startswith("198.18.77.")
    assert state["primaryNetworkInterfaceId"].startswith("eni-")
    assert state["metadataOptions"]["httpTokens"] == "required"
    assert state["rootBlockDevice"]["throughput"] == 250
    assert state["instanceInitiatedShutdownBehavior"] == "terminate"
    volume = ec2.describe_volumes(VolumeIds=[state["rootBlockDevice"]["volumeId"]])["Volumes"][0]
    assert volume["Tags"] == [{"Key": "of", "Value": "head"}]
    stable(double, made, inputs)
    gone(double, made)


@pytest.mark.parametrize(
    ("change", "updates", "replaces"),
    [
        ({"ami": "ami-0a11ce0024040002"}, set(), {"ami"}),
        ({"userData": "other"}, {"userData"}, set()),
        ({"userData": "other", "userDataReplaceOnChange": True}, {"userDataReplaceOnChange"}, {"userData"}),
        ({"instanceType": "m7i.xlarge"}, {"instanceType"}, set()),
        ({"subnetId": "subnet-1"}, set(), {"subnetId"}),
        ({"tags": {"a": "b"}}, {"tags"}, set()),
        ({"associatePublicIpAddress": False}, set(), {"associatePublicIpAddress"}),
    ],
)
def test_instance_changes_as_the_real_provider_decides(double, net, change, updates, replaces):
    if "instance" not in net:
        net["instance"] = double.create(INSTANCE, instance_inputs(net, userData="first"), name="compared")
    inputs = instance_inputs(net, userData="first") | change
    assert changed(double, net["instance"], inputs) == (updates, replaces)


def test_instance_changes_of_its_root_volume_and_options(double, net):
    made = double.create(INSTANCE, instance_inputs(net))
    root = {"volumeSize": 50, "volumeType": "gp3", "encrypted": True, "throughput": 500}
    news = instance_inputs(net) | {
        "rootBlockDevice": root,
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2},
        "userDataBase64": base64.b64encode(b"late").decode(),
        "instanceType": "m7i.xlarge",
        "disableApiTermination": True,
        "tags": {"x": "y"},
    }
    assert changed(double, made, news)[1] == set()
    updated = double.update(made, news)
    assert updated.id == made.id
    assert updated.state["rootBlockDevice"]["volumeSize"] == 50
    assert updated.state["rootBlockDevice"]["throughput"] == 500
    assert updated.state["metadataOptions"]["httpPutResponseHopLimit"] == 2
    assert updated.state["metadataOptions"]["instanceMetadataTags"] == "enabled"
    assert (updated.state["instanceType"], updated.state["instanceState"]) == ("m7i.xlarge", "running")
    stable(double, updated, news)
    encrypted = news | {"rootBlockDevice": root | {"encrypted": False}}
    assert changed(double, updated, encrypted) == (set(), {"rootBlockDevice.encrypted"})
    with pytest.raises(RefusedError, match="OperationNotPermitted"):
        double.delete(updated)
    gone(double, double.update(updated, news | {"disableApiTermination": False}))


def test_instance_changes_groups_and_profile(double, net):
    role = double.create("aws:iam/role:Role", {"assumeRolePolicy": TRUST}, name="r")
    profile = double.create("aws:iam/instanceProfile:InstanceProfile", {"role": role.id}, name="p")
    other = double.create("aws:ec2/securityGroup:SecurityGroup", {"vpcId": net["vpc"].id}, name="other")
    made = double.create(INSTANCE, instance_inputs(net))
    news = instance_inputs(net, iamInstanceProfile=profile.id) | {"vpcSecurityGroupIds": [other.id]}
    updated = double.update(made, news)
    stable(double, updated, news)
    assert updated.state["iamInstanceProfile"] == profile.id
    assert updated.state["vpcSecurityGroupIds"] == [other.id]
    for each in (updated, other, profile, role):
        gone(double, each)


def test_a_refusal_for_want_of_capacity_reaches_the_person_at_once(double, net, server):
    text = "We currently do not have sufficient m7i.large capacity in the Availability Zone you requested"
    fault = {"action": "RunInstances", "code": "InsufficientInstanceCapacity", "message": text, "status": 500}
    ask(server, "/faults", "POST", fault)
    with pytest.raises(RefusedError, match=f"(?s)^it: AWS refused run_instances. .*{text}.* Next: another zone"):
        double.create(INSTANCE, instance_inputs(net))


def test_what_an_orphan_holds_is_named(double, net):
    group = double.create("aws:ec2/securityGroup:SecurityGroup", {"vpcId": net["vpc"].id}, name="held")
    inputs = instance_inputs(net, tags={"Name": "orphan"}) | {"vpcSecurityGroupIds": [group.id]}
    orphan = double.create(INSTANCE, inputs)
    expected = (
        rf"security group {group.id} .* held by instance {orphan.id} \(orphan\) through eni-.*DependencyViolation"
    )
    with pytest.raises(RefusedError, match=f"(?s){expected}"):
        double.delete(group, timeout=0.3)
    double.delete(orphan)
    gone(double, group)


def test_a_hand_made_change_is_put_back(double, net, ec2):
    inputs = instance_inputs(net, tags={"Name": "head"})
    made = double.create(INSTANCE, inputs)
    ec2.create_tags(Resources=[made.id], Tags=[{"Key": "Name", "Value": "mine"}, {"Key": "extra", "Value": "x"}])
    seen = double.read(made)
    assert seen.inputs["tags"] == {"Name": "mine", "extra": "x"}
    assert changed(double, seen, inputs) == ({"tags"}, set())
    updated = double.update(seen, inputs)
    assert updated.state["tagsAll"] == {"Name": "head"}
    ec2.terminate_instances(InstanceIds=[made.id])
    assert double.read(updated) is None


def test_an_aws_that_cannot_be_asked_says_nothing_about_what_exists(double, net, server):
    fault = {"action": "DescribeVpcs", "code": "UnauthorizedOperation", "message": "not allowed", "times": 1}
    ask(server, "/faults", "POST", fault)
    with pytest.raises(RefusedError, match="UnauthorizedOperation"):
        double.read(net["vpc"])
    assert double.read(net["vpc"]).id == net["vpc"].id


def test_not_found_counts_only_when_said_twice(double, net, server):
    fault = {"action": "DescribeVpcs", "code": "InvalidVpcID.NotFound", "message": "not yet", "times": 1}
    ask(server, "/faults", "POST", fault)
    assert double.read(net["vpc"]).id == net["vpc"].id


def test_a_preview_makes_nothing_and_knows_what_it_can(double, net):
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    made = double.create(INSTANCE, instance_inputs(net, tags={"a": "b"}) | {"subnetId": unknown}, preview=True)
    assert made.id == ""
    assert made.state["instanceType"] == "m7i.large"
    assert made.state["tagsAll"] == {"a": "b"}
    assert repr(made.state["privateIp"]) == "<unknown>"


def test_default_tags_are_added_and_do_not_show_as_the_programs(server):
    with double_of(server, defaultTags='{"tags": {"owner": "me"}}') as tagging:
        inputs = {"cidrBlock": "10.11.0.0/16", "tags": {"a": "b"}}
        made = tagging.create("aws:ec2/vpc:Vpc", inputs)
        assert made.state["tags"] == {"a": "b"}
        assert made.state["tagsAll"] == {"a": "b", "owner": "me"}
        stable(tagging, made, inputs)
        with double_of(server, defaultTags='{"tags": {"owner": "you"}}') as other:
            assert changed(other, made, inputs) == ({"tagsAll"}, set())
        gone(tagging, made)


def test_a_resource_can_lie_in_another_region(double):
    inputs = {"cidrBlock": "10.12.0.0/16", "region": "us-east-1"}
    made = double.create("aws:ec2/vpc:Vpc", inputs)
    assert made.state["region"] == "us-east-1"
    assert ":us-east-1:" in made.state["arn"]
    assert changed(double, made, {"cidrBlock": "10.12.0.0/16", "region": "eu-west-1"}) == (set(), {"region"})
    gone(double, made)


def test_an_existing_resource_can_be_imported(double, net):
    imported = double.read(type(net["vpc"])(urn=net["vpc"].urn, id=net["vpc"].id, inputs={}, state={}))
    assert imported.state["cidrBlock"] == "10.77.0.0/16"
    inputs = {key: value for key, value in imported.inputs.items() if key != "__defaults"}
    assert changed(double, imported, inputs) == (set(), set())


def test_a_new_instance_that_does_not_show_yet_is_waited_for(double, net, server):
    fault = {"action": "DescribeInstances", "code": "InvalidInstanceID.NotFound", "message": "not yet", "times": 2}
    ask(server, "/faults", "POST", fault)
    assert double.create(INSTANCE, instance_inputs(net)).state["instanceState"] == "running"


def test_a_cancelled_wait_keeps_the_id_of_what_was_made(net, server):
    with double_of(server) as cancelled:
        cancelled.call("Cancel", empty_pb2.Empty())
        fault = {"action": "DescribeInstances", "code": "InvalidInstanceID.NotFound", "message": "not yet", "times": 9}
        ask(server, "/faults", "POST", fault)
        with pytest.raises(RefusedError, match="the wait was cancelled") as caught:
            cancelled.create(INSTANCE, instance_inputs(net))
        ask(server, "/faults", "DELETE")
    details = dict(caught.value.__cause__.trailing_metadata())
    assert b"ErrorResourceInitFailed" in details["grpc-status-details-bin"]
