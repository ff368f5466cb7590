"""Deletes that AWS refuses while something still hangs on the thing, in AWS's words; moto lets them pass."""

from collections.abc import Iterator
from typing import Any

from moto.ec2.models import ec2_backends

from rehearsal.aws.wire import AwsRefusal, Call

ENDED = frozenset({"terminated"})


def before_delete_subnet(call: Call, account_id: str) -> None:
    """A subnet with network interfaces stays.

    Raises:
        AwsRefusal: DependencyViolation.
    """
    ec2, subnet_id = _backend(call, account_id), call.params.get("SubnetId", "")
    if any(interface.subnet.id == subnet_id for interface in ec2.enis.values()):
        raise AwsRefusal("DependencyViolation", f"The subnet '{subnet_id}' has dependencies and cannot be deleted.")


def after_delete_subnet(call: Call, account_id: str, answer: object) -> None:  # noqa: ARG001
    """A subnet's route table associations end with it (moto keeps them)."""
    for table in _backend(call, account_id).route_tables.values():
        gone = [
            association for association, subnet in table._associations.items() if subnet == call.params.get("SubnetId")
        ]
        for association in gone:
            del table._associations[association]


def before_delete_group(call: Call, account_id: str) -> None:
    """A security group that an interface bears or another group's rule names stays; so does a default group.

    Raises:
        AwsRefusal: DependencyViolation or CannotDelete.
    """
    ec2, group_id = _backend(call, account_id), call.params.get("GroupId", "")
    group = ec2.get_security_group_from_id(group_id)
    if group is None:
        return
    if group.is_default:
        raise AwsRefusal(
            "CannotDelete", f'the specified group: "{group_id}" name: "default" cannot be deleted by a user'
        )
    borne = any(group in interface.group_set for interface in ec2.enis.values())
    named = any(
        rule.source_group.get("GroupId") == group_id
        for other in _groups(ec2)
        if other.id != group_id
        for rule in (*other.ingress_rules, *other.egress_rules)
    )
    if borne or named:
        raise AwsRefusal("DependencyViolation", f"resource {group_id} has a dependent object")


def _groups(ec2: Any) -> Iterator[Any]:  # noqa: ANN401 - moto's models
    for groups in ec2.groups.values():
        yield from groups.values()


def before_detach_gateway(call: Call, account_id: str) -> None:
    """A gateway stays attached while an interface in the network has a public address.

    Raises:
        AwsRefusal: DependencyViolation.
    """
    ec2, vpc_id = _backend(call, account_id), call.params.get("VpcId", "")
    if any(interface.public_ip and interface.subnet.vpc_id == vpc_id for interface in ec2.enis.values()):
        raise AwsRefusal(
            "DependencyViolation",
            f"Network {vpc_id} has some mapped public address(es). Please unmap those public address(es) before "
            "detaching the gateway.",
        )


def before_delete_vpc(call: Call, account_id: str) -> None:
    """A network with subnets, an attached gateway, own groups, own route tables or interfaces stays.

    Raises:
        AwsRefusal: DependencyViolation.
    """
    ec2, vpc_id = _backend(call, account_id), call.params.get("VpcId", "")
    if vpc_id not in ec2.vpcs:
        return
    held = (
        any(subnet.vpc_id == vpc_id for zone in ec2.subnets.values() for subnet in zone.values())
        or any(gateway.vpc is not None and gateway.vpc.id == vpc_id for gateway in ec2.internet_gateways.values())
        or any(group.vpc_id == vpc_id and not group.is_default for group in _groups(ec2))
        or any(table.vpc_id == vpc_id and not table.main_association_id for table in ec2.route_tables.values())
        or any(interface.subnet.vpc_id == vpc_id for interface in ec2.enis.values())
    )
    if held:
        raise AwsRefusal("DependencyViolation", f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")


def _backend(call: Call, account_id: str) -> Any:  # noqa: ANN401
    return ec2_backends[account_id][call.region]
