"""Everything that bears a cluster's tag is found, by kind; what may not be asked is unknown, not zero."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.stub import Stubber
from in_moto import ANY_IMAGE, REGION, aws_client, in_moto
from moto.core import DEFAULT_ACCOUNT_ID

from account import tagged
from account.clients import AwsError
from account.tagged import KINDS, list_tagged
from contract.inventory import Endpoint, EndpointKind
from contract.resources import Home

MINE = "rr-mine-1"
HOME = Home(
    account_id=DEFAULT_ACCOUNT_ID, region=REGION, endpoint=Endpoint(kind=EndpointKind.REHEARSAL, url="https://x")
)
IN_MOTO = HOME.model_copy(update={"endpoint": Endpoint.model_construct(kind=EndpointKind.REHEARSAL, url=None)})
"""moto in this process has no address; the kind says which calls it has."""


def tags(cluster_id: str = MINE) -> list[dict[str, str]]:
    return [{"Key": "rayrig:cluster", "Value": cluster_id}]


def spec(kind: str, cluster_id: str = MINE) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tags(cluster_id)}]


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with in_moto(monkeypatch):
        yield aws_client("ec2")


def make_everything(ec2: Any, cluster_id: str) -> None:
    """One of each kind that moto can make and rayrig can."""
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16", TagSpecifications=spec("vpc", cluster_id))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.77.0.0/20", TagSpecifications=spec("subnet", cluster_id))[
        "Subnet"
    ]["SubnetId"]
    ec2.create_internet_gateway(TagSpecifications=spec("internet-gateway", cluster_id))
    ec2.create_route_table(VpcId=vpc, TagSpecifications=spec("route-table", cluster_id))
    group = ec2.create_security_group(
        GroupName=f"g-{cluster_id}", Description="x", VpcId=vpc, TagSpecifications=spec("security-group", cluster_id)
    )["GroupId"]
    ec2.authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "1.2.3.4/32"}]}],
        TagSpecifications=spec("security-group-rule", cluster_id),
    )
    ec2.create_key_pair(KeyName=f"k-{cluster_id}", TagSpecifications=spec("key-pair", cluster_id))
    ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=spec("volume", cluster_id))
    ec2.create_network_interface(SubnetId=subnet, TagSpecifications=spec("network-interface", cluster_id))
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=spec("elastic-ip", cluster_id))["AllocationId"]
    ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address, TagSpecifications=spec("natgateway", cluster_id))
    ec2.create_launch_template(
        LaunchTemplateName=f"l-{cluster_id}",
        LaunchTemplateData={"InstanceType": "m7i.large"},
        TagSpecifications=spec("launch-template", cluster_id),
    )
    ec2.run_instances(
        ImageId=ANY_IMAGE, MinCount=1, MaxCount=1, SubnetId=subnet, TagSpecifications=spec("instance", cluster_id)
    )
    iam = aws_client("iam")
    iam.create_role(RoleName=f"r-{cluster_id}", AssumeRolePolicyDocument="{}", Tags=tags(cluster_id))
    iam.create_instance_profile(InstanceProfileName=f"p-{cluster_id}", Tags=tags(cluster_id))
    s3 = aws_client("s3")
    s3.create_bucket(Bucket=f"b-{cluster_id}", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_bucket_tagging(Bucket=f"b-{cluster_id}", Tagging={"TagSet": tags(cluster_id)})
    aws_client("efs").create_file_system(CreationToken=cluster_id, Tags=tags(cluster_id))


def listing(since: datetime | None = None) -> tagged.Listing:
    return list_tagged(MINE, home=IN_MOTO, since=since or datetime.now(UTC))


def test_every_kind_is_found_and_nothing_of_others(ec2) -> None:
    make_everything(ec2, MINE)
    ec2.create_vpc(CidrBlock="10.78.0.0/16", TagSpecifications=spec("vpc", "rr-other-2"))
    ec2.create_internet_gateway()
    found = listing().found
    assert {item.kind for item in found} == set(KINDS) - {"placement group", "capacity reservation"}
    assert len(found) == len(KINDS) - 2


def test_terminated_instances_are_not_left(ec2) -> None:
    made = ec2.run_instances(ImageId=ANY_IMAGE, MinCount=1, MaxCount=1, TagSpecifications=spec("instance"))
    ec2.terminate_instances(InstanceIds=[made["Instances"][0]["InstanceId"]])
    assert not [item for item in listing().found if item.kind == "instance"]


def test_old_roles_are_not_asked_for_their_tags(ec2) -> None:
    aws_client("iam").create_role(RoleName="r", AssumeRolePolicyDocument="{}", Tags=tags())
    ec2.create_vpc(CidrBlock="10.78.0.0/16", TagSpecifications=spec("vpc"))
    later = datetime.now(UTC) + timedelta(days=1)
    assert {item.kind for item in listing(since=later).found} == {"VPC"}
    assert {item.kind for item in listing().found} == {"VPC", "role"}


def test_what_may_not_be_listed_is_unknown(ec2) -> None:
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_volumes", "UnauthorizedOperation", "not authorized: ec2:DescribeVolumes")
        kind = next(kind for kind in tagged._EC2_KINDS if kind.name == "volume")
        part = tagged._one_kind("volume", tagged._ec2_task(ec2, kind, MINE))
    assert part.found == ()
    assert [item.kind for item in part.unknown] == ["volume"]
    assert "ec2:DescribeVolumes" in part.unknown[0].why


def test_another_error_is_no_answer(ec2) -> None:
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_volumes", "InternalError", "oops")
        kind = next(kind for kind in tagged._EC2_KINDS if kind.name == "volume")
        with pytest.raises(AwsError, match="oops"):
            tagged._one_kind("volume", tagged._ec2_task(ec2, kind, MINE))


@pytest.mark.parametrize(
    ("name", "operation", "answer", "found"),
    [
        (
            "placement group",
            "describe_placement_groups",
            {
                "PlacementGroups": [
                    {"GroupName": "p", "State": "available", "Tags": tags()},
                    {"GroupName": "q", "State": "deleted", "Tags": tags()},
                ]
            },
            ["p"],
        ),
        (
            "capacity reservation",
            "describe_capacity_reservations",
            {
                "CapacityReservations": [
                    {"CapacityReservationId": "cr-1", "State": "active", "Tags": tags()},
                    {"CapacityReservationId": "cr-2", "State": "cancelled", "Tags": tags()},
                ]
            },
            ["cr-1"],
        ),
    ],
)
def test_kinds_that_moto_lacks(ec2, name: str, operation: str, answer: dict[str, Any], found: list[str]) -> None:
    kind = next(kind for kind in tagged._EC2_KINDS if kind.name == name)
    with Stubber(ec2) as stub:
        stub.add_response(operation, answer, {"Filters": [{"Name": "tag:rayrig:cluster", "Values": [MINE]}]})
        assert [item.id for item in tagged._ec2_task(ec2, kind, MINE)()] == found
