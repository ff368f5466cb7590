"""Everything in the rehearsal's AWS, counted without tags or state: destroy must bring it back to what it was."""

from collections.abc import Iterator
from typing import Any

import boto3

GONE_STATES = frozenset({"terminated", "shutting-down"})


def snapshot(*, endpoint_url: str, region: str) -> frozenset[str]:
    """Ids of all resources of the kinds that rayrig creates, `kind/id`; terminated instances do not count.

    Args:
        endpoint_url: the rehearsal's endpoint.
        region: the region to look in (IAM and S3 are global).
    """
    session = boto3.session.Session(region_name=region)
    ec2 = session.client("ec2", endpoint_url=endpoint_url)
    iam = session.client("iam", endpoint_url=endpoint_url)
    s3 = session.client("s3", endpoint_url=endpoint_url)
    return frozenset([*_ec2(ec2), *_iam(iam), *(f"bucket/{b['Name']}" for b in s3.list_buckets()["Buckets"])])


def _ec2(ec2: Any) -> Iterator[str]:  # noqa: ANN401 - boto's clients are made at run time
    for reservation in ec2.describe_instances()["Reservations"]:
        for instance in reservation["Instances"]:
            if instance["State"]["Name"] not in GONE_STATES:
                yield f"instance/{instance['InstanceId']}"
    for kind, operation, listing, key in (
        ("volume", ec2.describe_volumes, "Volumes", "VolumeId"),
        ("interface", ec2.describe_network_interfaces, "NetworkInterfaces", "NetworkInterfaceId"),
        ("vpc", ec2.describe_vpcs, "Vpcs", "VpcId"),
        ("subnet", ec2.describe_subnets, "Subnets", "SubnetId"),
        ("gateway", ec2.describe_internet_gateways, "InternetGateways", "InternetGatewayId"),
        ("route-table", ec2.describe_route_tables, "RouteTables", "RouteTableId"),
        ("security-group", ec2.describe_security_groups, "SecurityGroups", "GroupId"),
        ("key-pair", ec2.describe_key_pairs, "KeyPairs", "KeyPairId"),
        ("address", ec2.describe_addresses, "Addresses", "AllocationId"),
    ):
        for entry in operation()[listing]:
            yield f"{kind}/{entry[key]}"


def _iam(iam: Any) -> Iterator[str]:  # noqa: ANN401 - boto's clients are made at run time
    for role in iam.list_roles()["Roles"]:
        yield f"role/{role['RoleName']}"
    for profile in iam.list_instance_profiles()["InstanceProfiles"]:
        yield f"instance-profile/{profile['InstanceProfileName']}"
