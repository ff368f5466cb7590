"""What the gap fillers add to moto's EC2: AWS's own answers where moto is lax or silent."""

import base64
import json

import pytest
from botocore.exceptions import ClientError
from in_double import UBUNTU, ask, aws, client

from rehearsal.aws.images import IMAGES
from rehearsal.aws.request_log import read_requests


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with aws(tmp_path_factory.mktemp("aws") / "requests.jsonl") as server:
        yield server


@pytest.fixture(scope="module")
def ec2(server):
    return client(server, "ec2")


@pytest.fixture
def net(ec2):
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.77.0.0/20", AvailabilityZone="eu-west-1a")
    subnet_id = subnet["Subnet"]["SubnetId"]
    ec2.modify_subnet_attribute(SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": True})
    group = ec2.create_security_group(GroupName="g", Description="d", VpcId=vpc)["GroupId"]
    return {"vpc": vpc, "subnet": subnet_id, "group": group}


def launch(ec2, net, **more):
    asked = {
        "ImageId": UBUNTU,
        "InstanceType": "m7i.large",
        "MinCount": 1,
        "MaxCount": 1,
        "SubnetId": net["subnet"],
        "SecurityGroupIds": [net["group"]],
    }
    return ec2.run_instances(**asked | more)["Instances"][0]


def look(ec2, instance):
    return ec2.describe_instances(InstanceIds=[instance["InstanceId"]])["Reservations"][0]["Instances"][0]


def code_of(call, **params):
    with pytest.raises(ClientError) as caught:
        call(**params)
    return caught.value.response["Error"]["Code"], str(caught.value)


def test_marker_names_the_world(server):
    assert ask(server, "") == {"worldId": "unit", "accountId": server.account_id, "region": "eu-west-1"}


def test_account_is_the_worlds_whatever_the_credentials(server):
    assert client(server, "sts").get_caller_identity()["Account"] == server.account_id


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.image_id)
def test_ami_parameters_lead_to_images_with_a_root_volume(server, ec2, image):
    found = client(server, "ssm").get_parameter(Name=image.parameter)["Parameter"]["Value"]
    described = ec2.describe_images(ImageIds=[found])["Images"][0]
    root = described["BlockDeviceMappings"][0]
    assert root["DeviceName"] == described["RootDeviceName"]
    assert root["Ebs"]["VolumeSize"] == image.size_gib


def test_a_launch_keeps_metadata_shutdown_volume_and_tags(ec2, net):
    ebs = {"VolumeSize": 30, "VolumeType": "gp3", "Iops": 4000, "Throughput": 500, "Encrypted": True}
    made = launch(
        ec2,
        net,
        MetadataOptions={"HttpTokens": "required", "InstanceMetadataTags": "enabled", "HttpPutResponseHopLimit": 2},
        InstanceInitiatedShutdownBehavior="terminate",
        BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": ebs}],
        TagSpecifications=[{"ResourceType": "volume", "Tags": [{"Key": "a", "Value": "b"}]}],
    )
    seen = look(ec2, made)
    options = seen["MetadataOptions"]
    assert (options["HttpTokens"], options["InstanceMetadataTags"], options["HttpPutResponseHopLimit"]) == (
        "required",
        "enabled",
        2,
    )
    volume = ec2.describe_volumes(VolumeIds=[seen["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]])["Volumes"][0]
    assert {key: volume[key] for key in ("Size", "VolumeType", "Iops", "Throughput", "Encrypted")} == {
        "Size": 30,
        "VolumeType": "gp3",
        "Iops": 4000,
        "Throughput": 500,
        "Encrypted": True,
    }
    assert volume["Tags"] == [{"Key": "a", "Value": "b"}]
    assert seen["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"]


def test_a_launch_without_a_volume_gets_the_images_root(ec2, net):
    seen = look(ec2, launch(ec2, net))
    volume = ec2.describe_volumes(VolumeIds=[seen["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]])["Volumes"][0]
    assert (volume["Size"], volume["VolumeType"], volume["Iops"], volume["Throughput"]) == (8, "gp3", 3000, 125)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ({"InstanceType": "m7i.nonesuch"}, "InvalidParameterValue"),
        ({"InstanceType": "p5.48xlarge"}, "Unsupported"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
        ({"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
    ],
)
def test_a_launch_that_aws_refuses_is_refused(ec2, net, change, code):
    assert code_of(lambda **more: launch(ec2, net, **more), **change)[0] == code


@pytest.mark.parametrize(
    ("ebs", "code"),
    [
        ({"VolumeSize": 4}, "InvalidBlockDeviceMapping"),
        ({"VolumeSize": 30, "VolumeType": "gp2", "Throughput": 200}, "InvalidParameterCombination"),
        ({"VolumeSize": 30, "VolumeType": "gp3", "Throughput": 9000}, "InvalidParameterValue"),
        ({"VolumeSize": 30, "VolumeType": "gp3", "Iops": 100}, "InvalidParameterValue"),
    ],
)
def test_a_volume_that_ebs_does_not_make_is_refused(ec2, net, ebs, code):
    mapping = [{"DeviceName": "/dev/sda1", "Ebs": ebs}]
    assert code_of(lambda **more: launch(ec2, net, **more), BlockDeviceMappings=mapping)[0] == code


def test_addresses_come_from_the_blocks_and_are_not_shared(ec2, net):
    seen = [look(ec2, launch(ec2, net)) for _ in range(4)]
    private = [each["PrivateIpAddress"] for each in seen]
    assert private == ["10.77.0.4", "10.77.0.5", "10.77.0.6", "10.77.0.7"]
    public = [each["PublicIpAddress"] for each in seen]
    assert len(set(public)) == 4
    assert all(address.startswith("198.18.77.") and address != "198.18.77.1" for address in public)
    ec2.terminate_instances(InstanceIds=[each["InstanceId"] for each in seen])
    fresh = look(ec2, launch(ec2, net))
    assert fresh["PrivateIpAddress"] not in private
    assert fresh["PublicIpAddress"] not in public


@pytest.mark.parametrize("behaviour", ["terminate", "stop"])
def test_an_instance_that_powers_itself_off_ends_as_its_behaviour_says(server, ec2, net, behaviour):
    made = launch(ec2, net, InstanceInitiatedShutdownBehavior=behaviour)
    state = {"terminate": "terminated", "stop": "stopped"}[behaviour]
    assert ask(server, f"/instances/{made['InstanceId']}/powered-off", "POST") == {"state": state}
    seen = look(ec2, made)
    assert seen["State"]["Name"] == state
    assert seen["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    assert ask(server, f"/instances/{made['InstanceId']}/powered-off", "POST") == {"state": state}


def test_an_ended_instance_stays_visible_and_can_be_ended_again(ec2, net):
    made = launch(ec2, net)
    for _ in range(2):
        ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    assert look(ec2, made)["State"]["Name"] == "terminated"


def test_what_is_in_use_cannot_be_deleted(ec2, net):
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=net["vpc"])
    made = launch(ec2, net)
    for call, params in (
        (ec2.delete_subnet, {"SubnetId": net["subnet"]}),
        (ec2.delete_security_group, {"GroupId": net["group"]}),
        (ec2.detach_internet_gateway, {"InternetGatewayId": gateway, "VpcId": net["vpc"]}),
        (ec2.delete_internet_gateway, {"InternetGatewayId": gateway}),
        (ec2.delete_vpc, {"VpcId": net["vpc"]}),
    ):
        assert code_of(call, **params)[0] == "DependencyViolation"
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    ec2.delete_subnet(SubnetId=net["subnet"])
    assert code_of(ec2.delete_vpc, VpcId=net["vpc"])[0] == "DependencyViolation"
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=net["vpc"])
    assert code_of(ec2.delete_vpc, VpcId=net["vpc"])[0] == "DependencyViolation"
    ec2.delete_security_group(GroupId=net["group"])
    ec2.delete_vpc(VpcId=net["vpc"])


def test_a_group_that_another_groups_rule_names_cannot_be_deleted(ec2, net):
    other = ec2.create_security_group(GroupName="other", Description="d", VpcId=net["vpc"])["GroupId"]
    pair = {"GroupId": net["group"], "Description": "the cluster"}
    rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "UserIdGroupPairs": [pair]}
    ec2.authorize_security_group_ingress(GroupId=other, IpPermissions=[rule])
    assert code_of(ec2.delete_security_group, GroupId=net["group"])[0] == "DependencyViolation"
    of_other = [{"Name": "group-id", "Values": [other]}]
    rules = ec2.describe_security_group_rules(Filters=of_other)["SecurityGroupRules"]
    assert [each["Description"] for each in rules if not each["IsEgress"]] == ["the cluster"]


def test_a_rule_can_be_turned_from_a_block_to_a_group(ec2, net):
    rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]}
    made = ec2.authorize_security_group_ingress(GroupId=net["group"], IpPermissions=[rule])["SecurityGroupRules"][0]
    asked = {"IpProtocol": "udp", "FromPort": 3, "ToPort": 4, "ReferencedGroupId": net["group"]}
    change = {"SecurityGroupRuleId": made["SecurityGroupRuleId"], "SecurityGroupRule": asked}
    ec2.modify_security_group_rules(GroupId=net["group"], SecurityGroupRules=[change])
    found = ec2.describe_security_group_rules(SecurityGroupRuleIds=[made["SecurityGroupRuleId"]])
    seen = found["SecurityGroupRules"][0]
    assert (seen["IpProtocol"], seen["FromPort"], seen["ToPort"]) == ("udp", 3, 4)
    assert seen["ReferencedGroupInfo"]["GroupId"] == net["group"]
    assert "CidrIpv4" not in seen


def test_an_instances_changed_groups_are_its_interfaces(ec2, net):
    other = ec2.create_security_group(GroupName="other", Description="d", VpcId=net["vpc"])["GroupId"]
    made = launch(ec2, net)
    ec2.modify_instance_attribute(InstanceId=made["InstanceId"], Groups=[other])
    assert [each["GroupId"] for each in look(ec2, made)["NetworkInterfaces"][0]["Groups"]] == [other]


def test_faults_refuse_the_calls_that_they_name(server, ec2, net):
    fault = {
        "action": "RunInstances",
        "code": "InsufficientInstanceCapacity",
        "message": "We currently do not have sufficient m7i.large capacity.",
        "params": {"InstanceType": "m7i.large"},
    }
    ask(server, "/faults", "POST", fault)
    code, text = code_of(lambda: launch(ec2, net))
    assert code == "InsufficientInstanceCapacity"
    assert "sufficient m7i.large capacity" in text
    assert launch(ec2, net)["InstanceId"]
    ask(server, "/faults", "POST", fault)
    ask(server, "/faults", "DELETE")
    assert launch(ec2, net)["InstanceId"]


def test_what_is_not_simulated_says_so(server, ec2):
    code, text = code_of(ec2.get_spot_placement_scores, TargetCapacity=1)
    assert code == "NotSimulated"
    assert "the rehearsal has no GetSpotPlacementScores" in text
    code, text = code_of(client(server, "pricing").describe_services)
    assert code == "NotSimulated"
    assert "the rehearsal has no pricing" in text


def test_requests_are_logged_with_what_moto_forgets(server, ec2, net):
    launch(ec2, net, Placement={"GroupName": "together"})
    runs = [each for each in read_requests(server.request_log) if each["action"] == "RunInstances"]
    assert runs[-1]["params"]["Placement.GroupName"] == "together"
    assert runs[-1]["status"] == 200
    assert server.request_log.stat().st_mode & 0o777 == 0o600
    assert "Credential" not in json.dumps(runs)


def test_changed_user_data_and_options_are_kept_as_sent(ec2, net):
    options = {"HttpTokens": "required", "InstanceMetadataTags": "enabled"}
    made = launch(ec2, net, UserData="first", MetadataOptions=options)
    script = "#!/bin/sh\necho later\n"
    ec2.modify_instance_attribute(InstanceId=made["InstanceId"], UserData={"Value": script.encode()})
    found = ec2.describe_instance_attribute(InstanceId=made["InstanceId"], Attribute="userData")
    assert base64.b64decode(found["UserData"]["Value"]).decode() == script
    ec2.modify_instance_metadata_options(InstanceId=made["InstanceId"], HttpPutResponseHopLimit=2)
    seen = look(ec2, made)["MetadataOptions"]
    assert seen["HttpPutResponseHopLimit"] == 2
    assert (seen["HttpTokens"], seen["InstanceMetadataTags"]) == ("required", "enabled")


def test_what_cannot_be_made_here_lists_as_empty(ec2):
    assert ec2.describe_capacity_reservations()["CapacityReservations"] == []
    assert ec2.describe_placement_groups()["PlacementGroups"] == []
