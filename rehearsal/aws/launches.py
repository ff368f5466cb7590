"""RunInstances as AWS does it: refusals that moto does not make, root volumes and interfaces that it gets wrong."""

import base64
import re
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from rehearsal.aws.wire import Answer, AwsRefusal, Call

INSTANCE_ID = re.compile(rb"<instanceId>(i-[0-9a-f]+)</instanceId>")
VOLUME_TYPES = frozenset({"standard", "gp2", "gp3", "io1", "io2", "st1", "sc1"})
GP3_IOPS = 3000
"""IOPS of a gp3 volume that asks for none (AWS EBS user guide)."""
GP3_THROUGHPUT_MIB = 125
"""MiB/s of a gp3 volume that asks for none (AWS EBS user guide)."""
GP3_IOPS_LIMITS = (3000, 80000)
GP3_THROUGHPUT_LIMITS_MIB = (125, 2000)


def before_launch(call: Call, account_id: str) -> None:
    """Refuses what AWS refuses and completes the root volume from the image.

    Raises:
        AwsRefusal: unknown image, key, type, subnet or group; a type that the zone lacks; a wrong volume.
    """
    ec2 = ec2_backends[account_id][call.region]
    image = _image(call, ec2)
    _check_key(call, ec2)
    _check_subnet_and_groups(call, ec2)
    _check_type(call, ec2)
    _complete_root(call, image)


def _image(call: Call, ec2: Any) -> Any:  # noqa: ANN401 - moto's models
    image_id = call.params.get("ImageId", "")
    if not image_id:
        raise AwsRefusal("MissingParameter", "The request must contain the parameter ImageId")
    if image_id not in ec2.amis:
        raise AwsRefusal("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
    return ec2.amis[image_id]


def _check_key(call: Call, ec2: Any) -> None:  # noqa: ANN401
    name = call.params.get("KeyName")
    if name and name not in ec2.key_pairs:
        raise AwsRefusal("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")


def _subnet_id(call: Call) -> str | None:
    if "SubnetId" in call.params:
        return call.params["SubnetId"]
    nics = call.groups("NetworkInterface").values()
    return next((nic["SubnetId"] for nic in nics if "SubnetId" in nic), None)


def _subnet(call: Call, ec2: Any) -> Any:  # noqa: ANN401
    subnet_id = _subnet_id(call)
    if subnet_id is None:
        return None
    for zone in ec2.subnets.values():
        if subnet_id in zone:
            return zone[subnet_id]
    raise AwsRefusal("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist")


def _group_ids(call: Call) -> list[str]:
    found = call.members("SecurityGroupId")
    for nic in call.groups("NetworkInterface").values():
        found += [value for name, value in nic.items() if name.startswith("SecurityGroupId.")]
    return found


def _check_subnet_and_groups(call: Call, ec2: Any) -> None:  # noqa: ANN401
    subnet = _subnet(call, ec2)
    for group_id in _group_ids(call):
        group = ec2.get_security_group_from_id(group_id)
        if group is None:
            raise AwsRefusal("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
        if subnet is not None and group.vpc_id != subnet.vpc_id:
            raise AwsRefusal(
                "InvalidParameter", f"Security group {group_id} and subnet {subnet.id} belong to different networks."
            )


def _check_type(call: Call, ec2: Any) -> None:  # noqa: ANN401
    name = call.params.get("InstanceType", "m1.small")
    if name not in INSTANCE_TYPES:
        raise AwsRefusal("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
    subnet = _subnet(call, ec2)
    zone = subnet.availability_zone if subnet else call.params.get("Placement.AvailabilityZone")
    offers = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(call.region, [])
    zones = sorted(offer["Location"] for offer in offers if offer["InstanceType"] == name)
    if zone and zone not in zones:
        raise AwsRefusal(
            "Unsupported",
            f"Your requested instance type ({name}) is not supported in your requested Availability Zone ({zone}). "
            f"Please retry your request by not specifying an Availability Zone or choosing {', '.join(zones)}.",
        )


def _complete_root(call: Call, image: Any) -> None:  # noqa: ANN401
    mapping = image.block_device_mappings[0]
    defaults, root = mapping["Ebs"], mapping["DeviceName"]
    devices = call.groups("BlockDeviceMapping")
    number = next((n for n, device in devices.items() if device.get("DeviceName") == root), None)
    if number is None:
        number = max(devices, default=0) + 1
        call.set(f"BlockDeviceMapping.{number}.DeviceName", root)
    device = call.groups("BlockDeviceMapping")[number]
    size = int(device.get("Ebs.VolumeSize", defaults["VolumeSize"]))
    if size < defaults["VolumeSize"]:
        raise AwsRefusal(
            "InvalidBlockDeviceMapping",
            f"Volume of size {size}GB is smaller than snapshot '{defaults['SnapshotId']}', "
            f"expect size>= {defaults['VolumeSize']}GB",
        )
    prefix = f"BlockDeviceMapping.{number}.Ebs."
    for name, value in {
        "VolumeSize": str(size),
        "VolumeType": defaults["VolumeType"],
        "DeleteOnTermination": "true",
    }.items():
        if f"Ebs.{name}" not in device:
            call.set(prefix + name, value)
    for each in call.groups("BlockDeviceMapping").values():
        check_volume(
            each.get("Ebs.VolumeType", "gp2"),
            iops=_number(each.get("Ebs.Iops")),
            throughput_mib=_number(each.get("Ebs.Throughput")),
        )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def check_volume(kind: str, *, iops: int | None, throughput_mib: int | None) -> None:
    """Refuses a volume that EBS does not make.

    Args:
        kind: volume type, as gp3.
        iops: asked for; None for the type's own.
        throughput_mib: asked for, MiB/s; None for the type's own.

    Raises:
        AwsRefusal: the type is unknown, or does not take these figures.
    """
    if kind not in VOLUME_TYPES:
        raise AwsRefusal("InvalidParameterValue", f"Invalid value '{kind}' for VolumeType.")
    if throughput_mib is not None and kind != "gp3":
        raise AwsRefusal(
            "InvalidParameterCombination", f"The parameter throughput is not supported for {kind} volumes."
        )
    if iops is not None and kind not in {"gp3", "io1", "io2"}:
        raise AwsRefusal("InvalidParameterCombination", f"The parameter iops is not supported for {kind} volumes.")
    for name, value, limits in (
        ("iops", iops, GP3_IOPS_LIMITS),
        ("throughput", throughput_mib, GP3_THROUGHPUT_LIMITS_MIB),
    ):
        if value is not None and kind == "gp3" and not limits[0] <= value <= limits[1]:
            raise AwsRefusal(
                "InvalidParameterValue", f"Volume {name} of {value} is not in the range {limits[0]}-{limits[1]}."
            )


def after_launch(call: Call, account_id: str, answer: Answer) -> None:
    """Gives the new instances what moto dropped: IOPS, throughput, interfaces that end with them, their groups."""
    ec2 = ec2_backends[account_id][call.region]
    asked = {each.get("DeviceName"): each for each in call.groups("BlockDeviceMapping").values()}
    keep_nic = {
        nic.get("DeviceIndex")
        for nic in call.groups("NetworkInterface").values()
        if nic.get("DeleteOnTermination") == "false" or "NetworkInterfaceId" in nic
    }
    for instance_id in {match.decode() for match in INSTANCE_ID.findall(answer.body)}:
        instance = ec2.get_instance(instance_id)
        for name, attachment in instance.block_device_mapping.items():
            _complete_volume(ec2.volumes[attachment.volume_id], asked.get(name, {}))
        for index, nic in instance.nics.items():
            nic.delete_on_termination = str(index) not in keep_nic
            if not instance.security_groups:
                instance.security_groups = list(nic.group_set)


def _complete_volume(volume: Any, asked: dict[str, str]) -> None:  # noqa: ANN401
    if volume.volume_type == "gp3":
        volume.iops = int(asked.get("Ebs.Iops", GP3_IOPS))
        volume.throughput = int(asked.get("Ebs.Throughput", GP3_THROUGHPUT_MIB))
    elif "Ebs.Iops" in asked:
        volume.iops = int(asked["Ebs.Iops"])


def after_terminate(call: Call, account_id: str, answer: Answer) -> None:  # noqa: ARG001 - one signature for all
    """Ends what belongs to the ended instances for good."""
    settle_ended(ec2_backends[account_id][call.region])


def settle_ended(ec2: Any) -> None:  # noqa: ANN401 - moto's models
    """Lets a second TerminateInstances pass, and keeps freed private addresses from being handed out again.

    On AWS, too, a fresh node seldom gets the address that the last one had.
    """
    for reservation in ec2.reservations.values():
        for instance in reservation.instances:
            if instance.state == "terminated":
                for nic in instance.nics.values():
                    nic.delete_on_termination = False
    for zone in ec2.subnets.values():
        for subnet in zone.values():
            subnet._unused_ips.clear()


def before_modify_instance(call: Call, account_id: str) -> None:  # noqa: ARG001 - one signature for all
    """New user data arrives as it was sent (moto takes one layer of base64 too many away)."""
    if "UserData.Value" in call.params:
        call.set("UserData.Value", base64.b64encode(call.params["UserData.Value"].encode()).decode())


METADATA_OPTIONS = {
    "HttpTokens": "http_tokens",
    "HttpPutResponseHopLimit": "http_put_response_hop_limit",
    "HttpEndpoint": "http_endpoint",
    "HttpProtocolIpv6": "http_protocol_ipv6",
    "InstanceMetadataTags": "instance_metadata_tags",
}


def before_modify_metadata(call: Call, account_id: str) -> None:
    """Options that are not named stay as they are (moto empties them)."""
    instance = ec2_backends[account_id][call.region].get_instance_by_id(call.params.get("InstanceId", ""))
    if instance is not None:
        for name, attribute in METADATA_OPTIONS.items():
            if name not in call.params:
                call.set(name, str(getattr(instance.metadata_options, attribute)))
