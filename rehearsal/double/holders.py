"""Names what still holds a thing that cannot be deleted."""

from typing import Any

from rehearsal.double.session import Session


def interfaces(session: Session, **filters: str) -> list[str]:
    """Network interfaces, each with the instance that bears it: `subnet_id="subnet-…"` and the like filter them."""
    return [_interface(session, each) for each in _found(session, **filters)]


def public_interfaces(session: Session, vpc_id: str) -> list[str]:
    """Network interfaces with a public address in a network."""
    found = [each for each in _found(session, vpc_id=vpc_id) if each.get("Association")]
    return [_interface(session, each) for each in found]


def _found(session: Session, **filters: str) -> list[dict[str, Any]]:
    asked = [{"Name": name.replace("_", "-"), "Values": [value]} for name, value in filters.items()]
    found: list[dict[str, Any]] = session.ec2("describe_network_interfaces", Filters=asked)["NetworkInterfaces"]
    return found


def _interface(session: Session, found: dict[str, Any]) -> str:
    interface_id = found["NetworkInterfaceId"]
    instance_id = found.get("Attachment", {}).get("InstanceId")
    if not instance_id:
        return f"network interface {interface_id}"
    answer = session.ec2("describe_instances", InstanceIds=[instance_id])
    instance = answer["Reservations"][0]["Instances"][0]
    name = next((tag["Value"] for tag in instance.get("Tags", []) if tag["Key"] == "Name"), None)
    return f"instance {instance_id}" + (f" ({name})" if name else "") + f" through {interface_id}"


def in_network(session: Session, vpc_id: str) -> list[str]:
    """Subnets, own groups, gateways and interfaces of a network."""
    vpc = [{"Name": "vpc-id", "Values": [vpc_id]}]
    attached = [{"Name": "attachment.vpc-id", "Values": [vpc_id]}]
    subnets = session.ec2("describe_subnets", Filters=vpc)["Subnets"]
    groups = session.ec2("describe_security_groups", Filters=vpc)["SecurityGroups"]
    gateways = session.ec2("describe_internet_gateways", Filters=attached)["InternetGateways"]
    return [
        *interfaces(session, vpc_id=vpc_id),
        *(f"subnet {each['SubnetId']}" for each in subnets),
        *(
            f"security group {each['GroupId']} ({each['GroupName']})"
            for each in groups
            if each["GroupName"] != "default"
        ),
        *(f"internet gateway {each['InternetGatewayId']}" for each in gateways),
    ]


def of_group(session: Session, group_id: str) -> list[str]:
    """Interfaces in a security group, and groups whose rules name it."""
    named = [
        each
        for direction in ("", "egress.")
        for each in session.ec2(
            "describe_security_groups", Filters=[{"Name": f"{direction}ip-permission.group-id", "Values": [group_id]}]
        )["SecurityGroups"]
        if each["GroupId"] != group_id
    ]
    return [
        *interfaces(session, group_id=group_id),
        *dict.fromkeys(f"a rule of security group {each['GroupId']} ({each['GroupName']})" for each in named),
    ]
