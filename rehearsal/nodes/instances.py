"""What moto says of instances and their security groups, read through boto3 like anybody else would."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config

LAB_ACCESS_KEY = "rehearsal"
"""Access key of the lab's own calls and of the person's shell; moto takes any key for the account it serves."""
LAB_SECRET_KEY = "rehearsal"  # noqa: S105 - moto checks no signatures
LIVING = ("pending", "running", "stopping", "stopped")
"""States of instances that have, or will have again, a machine."""
UP = frozenset({"pending", "running"})

_CONFIG = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 2})


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance as DescribeInstances shows it."""

    instance_id: str
    state: str
    instance_type: str
    image_id: str
    private_ip: str
    public_ip: str | None
    key_name: str | None
    subnet_id: str
    vpc_id: str
    availability_zone: str
    group_ids: tuple[str, ...]
    group_names: tuple[str, ...]
    profile_arn: str | None
    token_required: bool = field(metadata={"doc": "http_tokens=required: IMDSv2 only"})
    metadata_enabled: bool = True
    tags_in_metadata: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def hostname(self) -> str:
        """The name that EC2 gives by private address."""
        return f"ip-{self.private_ip.replace('.', '-')}"

    @property
    def mac(self) -> str:
        """The address of its interface: made from the private address, since moto's is the same for all."""
        return "02:42:" + ":".join(f"{int(part):02x}" for part in self.private_ip.split("."))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One permission of a security group; ports are ignored where the protocol has none."""

    protocol: str = field(metadata={"doc": "tcp, udp, icmp, a number, or -1 for all"})
    from_port: int = -1
    to_port: int = -1
    cidrs: tuple[str, ...] = ()
    group_ids: tuple[str, ...] = ()
    prefix_lists: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SecurityGroup:
    """One security group's permissions."""

    group_id: str
    ingress: tuple[Rule, ...]
    egress: tuple[Rule, ...]


class Cloud:
    """Reads one region of the world's AWS."""

    def __init__(self, *, endpoint_url: str, region: str) -> None:
        session = boto3.session.Session(
            aws_access_key_id=LAB_ACCESS_KEY, aws_secret_access_key=LAB_SECRET_KEY, region_name=region
        )
        self.region = region
        self.ec2 = session.client("ec2", endpoint_url=endpoint_url, config=_CONFIG)
        self.iam = session.client("iam", endpoint_url=endpoint_url, config=_CONFIG)
        self.sts = session.client("sts", endpoint_url=endpoint_url, config=_CONFIG)

    def instances(self) -> dict[str, Instance]:
        """Instances that have a machine, by id."""
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-state-name", "Values": list(LIVING)}]
        )
        raw = (i for page in pages for reservation in page["Reservations"] for i in reservation["Instances"])
        return {i["InstanceId"]: _instance(i) for i in raw}

    def security_groups(self, group_ids: Iterable[str]) -> dict[str, SecurityGroup]:
        """The groups named, by id; those that are gone are left out."""
        wanted = sorted(set(group_ids))
        if not wanted:
            return {}
        pages = self.ec2.get_paginator("describe_security_groups").paginate(
            Filters=[{"Name": "group-id", "Values": wanted}]
        )
        return {g["GroupId"]: _group(g) for page in pages for g in page["SecurityGroups"]}


def _instance(raw: Mapping[str, Any]) -> Instance:
    options = raw.get("MetadataOptions") or {}
    groups = raw.get("SecurityGroups") or []
    return Instance(
        instance_id=raw["InstanceId"],
        state=raw["State"]["Name"],
        instance_type=raw["InstanceType"],
        image_id=raw["ImageId"],
        private_ip=raw["PrivateIpAddress"],
        public_ip=raw.get("PublicIpAddress") or None,
        key_name=raw.get("KeyName") or None,
        subnet_id=raw.get("SubnetId", ""),
        vpc_id=raw.get("VpcId", ""),
        availability_zone=raw["Placement"]["AvailabilityZone"],
        group_ids=tuple(g["GroupId"] for g in groups),
        group_names=tuple(g["GroupName"] for g in groups),
        profile_arn=(raw.get("IamInstanceProfile") or {}).get("Arn"),
        token_required=options.get("HttpTokens") == "required",
        metadata_enabled=options.get("HttpEndpoint", "enabled") == "enabled",
        tags_in_metadata=options.get("InstanceMetadataTags") == "enabled",
        tags={t["Key"]: t["Value"] for t in raw.get("Tags") or []},
    )


def _group(raw: Mapping[str, Any]) -> SecurityGroup:
    return SecurityGroup(
        group_id=raw["GroupId"],
        ingress=tuple(_rule(p) for p in raw.get("IpPermissions") or []),
        egress=tuple(_rule(p) for p in raw.get("IpPermissionsEgress") or []),
    )


def _rule(raw: Mapping[str, Any]) -> Rule:
    return Rule(
        protocol=str(raw["IpProtocol"]),
        from_port=int(raw.get("FromPort", -1)),
        to_port=int(raw.get("ToPort", -1)),
        cidrs=tuple(r["CidrIp"] for r in raw.get("IpRanges") or []),
        group_ids=tuple(p["GroupId"] for p in raw.get("UserIdGroupPairs") or []),
        prefix_lists=tuple(p["PrefixListId"] for p in raw.get("PrefixListIds") or []),
    )
