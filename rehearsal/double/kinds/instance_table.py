"""The table of `aws:ec2/instance:Instance`."""

import base64
import binascii
from collections.abc import Mapping

from rehearsal.double.kinds.instances import InstanceHandler
from rehearsal.double.table import REGION, TAGS, UNSIMULATED, Property, Table, at_most_one, one_of, within
from rehearsal.double.values import UNKNOWN, Values

USER_DATA_LIMIT_BYTES = 16384
"""Most bytes of user data before base64 (EC2 user guide)."""


def user_data(value: str) -> str | None:
    """What is wrong with plain user data."""
    size = len(value.encode())
    return None if size <= USER_DATA_LIMIT_BYTES else f"expected at most {USER_DATA_LIMIT_BYTES} bytes, got {size}"


def user_data_base64(value: str) -> str | None:
    """What is wrong with user data in base64."""
    try:
        size = len(base64.b64decode(value, validate=True))
    except binascii.Error as error:
        return f"not base64: {error}"
    return None if size <= USER_DATA_LIMIT_BYTES else f"expected at most {USER_DATA_LIMIT_BYTES} bytes, got {size}"


def _needs(inputs: Values) -> Mapping[str, str]:
    """Without a launch template, which is not simulated, image and type must be given; gp3 alone has throughput."""
    wrong = {name: f"missing property {name}" for name in ("ami", "instanceType") if name not in inputs}
    root = inputs.get("rootBlockDevice")
    if isinstance(root, Mapping):
        kind = root.get("volumeType", "gp3")
        if kind is not UNKNOWN and "throughput" in root and kind != "gp3":
            wrong["rootBlockDevice.throughput"] = f"throughput is for gp3 volumes, not {kind}"
        if kind is not UNKNOWN and "iops" in root and kind not in {"gp3", "io1", "io2"}:
            wrong["rootBlockDevice.iops"] = f"iops is for gp3, io1 and io2 volumes, not {kind}"
    return wrong


METADATA_OPTIONS = {
    "httpEndpoint": Property(default="enabled", wrong=one_of("enabled", "disabled")),
    "httpProtocolIpv6": Property(default="disabled", wrong=one_of("enabled", "disabled")),
    "httpPutResponseHopLimit": Property(kind="number", computed=True, wrong=within(1, 64)),
    "httpTokens": Property(computed=True, wrong=one_of("optional", "required")),
    "instanceMetadataTags": Property(computed=True, wrong=one_of("enabled", "disabled")),
}
ROOT_DEVICE = {
    "deleteOnTermination": Property(kind="flag", default=True),
    "encrypted": Property(kind="flag", computed=True),
    "iops": Property(kind="number", computed=True, wrong=within(100, 256000)),
    "kmsKeyId": UNSIMULATED,
    "tags": Property(kind="map"),
    "tagsAll": UNSIMULATED,
    "throughput": Property(kind="number", computed=True, wrong=within(125, 2000)),
    "volumeSize": Property(kind="number", computed=True, wrong=within(1, 65536)),
    "volumeType": Property(computed=True, wrong=one_of("standard", "gp2", "gp3", "io1", "io2", "st1", "sc1")),
}

INSTANCE = Table(
    pulumi_type="aws:ec2/instance:Instance",
    what="instance",
    properties={
        "ami": Property(computed=True),
        "associatePublicIpAddress": Property(kind="flag", computed=True),
        "availabilityZone": Property(computed=True),
        "capacityReservationSpecification": UNSIMULATED,
        "cpuOptions": UNSIMULATED,
        "creditSpecification": UNSIMULATED,
        "disableApiStop": Property(kind="flag", computed=True),
        "disableApiTermination": Property(kind="flag", computed=True),
        "ebsBlockDevices": UNSIMULATED,
        "ebsOptimized": Property(kind="flag", computed=True),
        "enablePrimaryIpv6": UNSIMULATED,
        "enclaveOptions": UNSIMULATED,
        "ephemeralBlockDevices": UNSIMULATED,
        "forceDestroy": Property(kind="flag", default=False, local=True),
        "getPasswordData": Property(kind="flag", default=False, local=True, wrong=one_of(False)),  # type: ignore[arg-type]
        "hibernation": UNSIMULATED,
        "hostId": UNSIMULATED,
        "hostResourceGroupArn": UNSIMULATED,
        "iamInstanceProfile": Property(computed=True),
        "instanceInitiatedShutdownBehavior": Property(computed=True, wrong=one_of("stop", "terminate")),
        "instanceMarketOptions": UNSIMULATED,
        "instanceType": Property(computed=True),
        "ipv6AddressCount": UNSIMULATED,
        "ipv6Addresses": UNSIMULATED,
        "keyName": Property(computed=True),
        "launchTemplate": UNSIMULATED,
        "maintenanceOptions": UNSIMULATED,
        "metadataOptions": Property(kind="block", computed=True, fields=METADATA_OPTIONS),
        "monitoring": Property(kind="flag", computed=True),
        "networkInterfaces": UNSIMULATED,
        "placementGroup": UNSIMULATED,
        "placementGroupId": UNSIMULATED,
        "placementPartitionNumber": UNSIMULATED,
        "primaryNetworkInterface": UNSIMULATED,
        "privateDnsNameOptions": UNSIMULATED,
        "privateIp": Property(computed=True),
        "region": REGION,
        "rootBlockDevice": Property(kind="block", computed=True, fields=ROOT_DEVICE),
        "secondaryNetworkInterfaces": UNSIMULATED,
        "secondaryPrivateIps": UNSIMULATED,
        "securityGroups": UNSIMULATED,
        "sourceDestCheck": Property(kind="flag", default=True),
        "subnetId": Property(computed=True),
        "tags": TAGS,
        "tenancy": Property(computed=True, wrong=one_of("default")),
        "userData": Property(wrong=user_data),
        "userDataBase64": Property(computed=True, wrong=user_data_base64),
        "userDataReplaceOnChange": Property(kind="flag", default=False, local=True),
        "volumeTags": Property(kind="map", computed=True),
        "vpcSecurityGroupIds": Property(kind="texts", computed=True, compare="set"),
    },
    outputs=(
        "arn", "instanceLifecycle", "instanceState", "outpostArn", "passwordData", "primaryNetworkInterfaceId",
        "privateDns", "publicDns", "publicIp", "spotInstanceRequestId", "tagsAll",
    ),
    rules=(_needs, at_most_one("userData", "userDataBase64")),
    handler=InstanceHandler(),
)  # fmt: skip
