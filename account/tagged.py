"""Everything that bears a cluster's tag, over every kind that rayrig makes, whatever Pulumi's state says."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from account.clients import AwsError, aws_errors, client
from account.instances import ENDED_STATES
from account.kept_bucket import bucket_tags, own_buckets
from contract.inventory import EndpointKind
from contract.names import TAG_CLUSTER
from contract.resources import Home

CLOCK_SKEW = timedelta(hours=1)
"""Roles older than the cluster by more than this are not asked for their tags; they cannot be the cluster's."""
PARALLEL_CALLS = 8


@dataclass(frozen=True, kw_only=True)
class Found:
    """One resource that bears the cluster's tag."""

    kind: str
    id: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """A kind that could not be listed for want of permission: unknown, not zero."""

    kind: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What bears a cluster's tag."""

    found: tuple[Found, ...] = ()
    unknown: tuple[Unknown, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Ec2Kind:
    """How EC2 lists one kind: it filters by tag itself."""

    name: str
    operation: str
    key: str
    id: str
    state: str = "State"
    gone: frozenset[str] = frozenset({"deleted", "deleting"})
    filter: str = "Filters"
    in_rehearsal: bool = field(default=True)
    """False for calls that moto 5.2.5 lacks; rehearsal cannot make such a thing either."""


_EC2_KINDS = (
    _Ec2Kind(name="volume", operation="describe_volumes", key="Volumes", id="VolumeId"),
    _Ec2Kind(
        name="network interface",
        operation="describe_network_interfaces",
        key="NetworkInterfaces",
        id="NetworkInterfaceId",
        state="Status",
    ),
    _Ec2Kind(name="security group", operation="describe_security_groups", key="SecurityGroups", id="GroupId"),
    _Ec2Kind(
        name="security group rule",
        operation="describe_security_group_rules",
        key="SecurityGroupRules",
        id="SecurityGroupRuleId",
    ),
    _Ec2Kind(name="subnet", operation="describe_subnets", key="Subnets", id="SubnetId"),
    _Ec2Kind(name="route table", operation="describe_route_tables", key="RouteTables", id="RouteTableId"),
    _Ec2Kind(
        name="internet gateway", operation="describe_internet_gateways", key="InternetGateways", id="InternetGatewayId"
    ),
    _Ec2Kind(name="VPC", operation="describe_vpcs", key="Vpcs", id="VpcId"),
    _Ec2Kind(name="key pair", operation="describe_key_pairs", key="KeyPairs", id="KeyName"),
    _Ec2Kind(name="elastic IP", operation="describe_addresses", key="Addresses", id="AllocationId"),
    _Ec2Kind(
        name="NAT gateway", operation="describe_nat_gateways", key="NatGateways", id="NatGatewayId", filter="Filter"
    ),
    _Ec2Kind(
        name="launch template", operation="describe_launch_templates", key="LaunchTemplates", id="LaunchTemplateId"
    ),
    _Ec2Kind(
        name="placement group",
        operation="describe_placement_groups",
        key="PlacementGroups",
        id="GroupName",
        in_rehearsal=False,
    ),
    _Ec2Kind(
        name="capacity reservation",
        operation="describe_capacity_reservations",
        key="CapacityReservations",
        id="CapacityReservationId",
        gone=frozenset({"cancelled", "expired", "failed"}),
        in_rehearsal=False,
    ),
)

KINDS = (
    "instance",
    *(kind.name for kind in _EC2_KINDS),
    "role",
    "instance profile",
    "bucket",
    "file system",
)
"""Every kind that is looked at, for messages and tests."""


def list_tagged(cluster_id: str, *, home: Home, since: datetime) -> Listing:
    """Lists what bears `rayrig:cluster = cluster_id`; changes nothing.

    Args:
        cluster_id: the cluster.
        home: the account, region and endpoint to look in.
        since: when the cluster was made; roles made long before it are not asked for their tags.

    Raises:
        CloudError: AWS did not answer, or refused for another reason than permission. A kind that may not be
            listed is in `unknown` instead.
    """
    clients = {
        service: client(service, region=home.region, endpoint=home.endpoint) for service in ("ec2", "iam", "s3", "efs")
    }
    rehearsal = home.endpoint.kind is EndpointKind.REHEARSAL
    tasks: list[tuple[str, Callable[[], Iterable[Found]]]] = [
        ("instance", lambda: _instances(clients["ec2"], cluster_id)),
        *((kind.name, _ec2_task(clients["ec2"], kind, cluster_id)) for kind in _EC2_KINDS if _asked(kind, rehearsal)),
        ("role", lambda: _roles(clients["iam"], cluster_id, since)),
        ("instance profile", lambda: _instance_profiles(clients["iam"], cluster_id, since)),
        ("bucket", lambda: _buckets(clients["s3"], cluster_id, since)),
        ("file system", lambda: _file_systems(clients["efs"], cluster_id)),
    ]
    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        parts = list(pool.map(lambda task: _one_kind(*task), tasks))
    return Listing(
        found=tuple(found for part in parts for found in part.found),
        unknown=tuple(unknown for part in parts for unknown in part.unknown),
    )


def _asked(kind: _Ec2Kind, rehearsal: bool) -> bool:
    return kind.in_rehearsal or not rehearsal


def _one_kind(name: str, listing: Callable[[], Iterable[Found]]) -> Listing:
    try:
        with aws_errors(f"cannot list what is left of kind {name!r}"):
            return Listing(found=tuple(listing()))
    except AwsError as error:
        if not error.denied:
            raise
        return Listing(unknown=(Unknown(kind=name, why=error.why or str(error)),))


def _ec2_task(ec2: Any, kind: _Ec2Kind, cluster_id: str) -> Callable[[], Iterable[Found]]:  # noqa: ANN401 - a boto client
    def listing() -> Iterator[Found]:
        arguments = {kind.filter: [{"Name": f"tag:{TAG_CLUSTER}", "Values": [cluster_id]}]}
        for item in _items(ec2, kind.operation, kind.key, **arguments):
            state = str(item.get(kind.state, ""))
            # Asked for by tag, and looked at again: not every endpoint heeds every filter.
            if state not in kind.gone and _bears(_tags(item), cluster_id):
                yield Found(kind=kind.name, id=str(item[kind.id]), detail=state)

    return listing


def _instances(ec2: Any, cluster_id: str) -> Iterator[Found]:  # noqa: ANN401 - a boto client
    filters = [{"Name": f"tag:{TAG_CLUSTER}", "Values": [cluster_id]}]
    for reservation in _items(ec2, "describe_instances", "Reservations", Filters=filters):
        for item in reservation["Instances"]:
            state = item["State"]["Name"]
            # An ending instance still holds its interface and is billed until it is terminated: it counts as left.
            if state != "terminated":
                word = "ending" if state in ENDED_STATES else state
                yield Found(kind="instance", id=item["InstanceId"], detail=f"{item.get('InstanceType', '')} {word}")


def _roles(iam: Any, cluster_id: str, since: datetime) -> Iterator[Found]:  # noqa: ANN401 - a boto client
    for item in _items(iam, "list_roles", "Roles"):
        if _recent(item, since) and _bears(_iam_tags(iam.get_role, "Role", RoleName=item["RoleName"]), cluster_id):
            yield Found(kind="role", id=item["RoleName"])


def _instance_profiles(iam: Any, cluster_id: str, since: datetime) -> Iterator[Found]:  # noqa: ANN401 - a boto client
    for item in _items(iam, "list_instance_profiles", "InstanceProfiles"):
        name = item["InstanceProfileName"]
        if not _recent(item, since):
            continue
        if _bears(_iam_tags(iam.get_instance_profile, "InstanceProfile", InstanceProfileName=name), cluster_id):
            yield Found(kind="instance profile", id=name)


def _iam_tags(get: Callable[..., Any], key: str, **name: str) -> dict[str, str]:
    try:
        with aws_errors("cannot read tags", where=next(iter(name.values()))):
            return _tags(get(**name)[key])
    except AwsError as error:
        if error.not_found:  # deleted between the list and this call
            return {}
        raise


def _buckets(s3: Any, cluster_id: str, since: datetime) -> Iterator[Found]:  # noqa: ANN401 - a boto client
    for item in own_buckets(s3):
        if _recent({"CreateDate": item.get("CreationDate")}, since) and _bears(
            bucket_tags(s3, item["Name"]), cluster_id
        ):
            yield Found(kind="bucket", id=item["Name"])


def _file_systems(efs: Any, cluster_id: str) -> Iterator[Found]:  # noqa: ANN401 - a boto client
    for item in _items(efs, "describe_file_systems", "FileSystems"):
        state = str(item.get("LifeCycleState", ""))
        if _bears(_tags(item), cluster_id) and state not in {"deleting", "deleted"}:
            yield Found(kind="file system", id=item["FileSystemId"], detail=state)


def _items(service: Any, operation: str, key: str, **arguments: object) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - boto
    if service.can_paginate(operation):
        for page in service.get_paginator(operation).paginate(**arguments):
            yield from page[key]
    else:
        yield from getattr(service, operation)(**arguments)[key]


def _recent(item: dict[str, Any], since: datetime) -> bool:
    made: datetime | None = item.get("CreateDate")
    if made is None:
        return True
    aware = made if made.tzinfo else made.replace(tzinfo=UTC)
    return aware >= since - CLOCK_SKEW


def _tags(item: dict[str, Any]) -> dict[str, str]:
    # DescribeNetworkInterfaces alone calls them TagSet.
    return {tag["Key"]: tag["Value"] for tag in item.get("Tags") or item.get("TagSet") or []}


def _bears(tags: dict[str, str], cluster_id: str) -> bool:
    return tags.get(TAG_CLUSTER) == cluster_id
