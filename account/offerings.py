"""What AWS offers in a region: instance types with their hardware, and the zones that have them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from account.clients import AwsError, aws_errors, session
from contract.errors import ConfigError

MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """The hardware of one instance type, as DescribeInstanceTypes tells it."""

    name: str
    cpu_count: int
    memory_bytes: int
    gpu_count: int
    gpu_model: str | None
    gpu_manufacturer: str | None
    gpu_memory_bytes: int
    """Of all its GPUs together."""
    architectures: tuple[str, ...]
    network: str
    """AWS's words, such as 'Up to 25 Gigabit'."""


class UnknownTypeError(ConfigError):
    """The region does not know an instance type."""


def describe_instance_type(ec2: Any, name: str) -> InstanceType:  # noqa: ANN401 - a boto3 client
    """Asks for one type's hardware.

    Raises:
        UnknownTypeError: the type does not exist in the client's region.
        AwsError: AWS refused or did not answer.
    """
    region = str(ec2.meta.region_name)
    try:
        with aws_errors(f"cannot describe the instance type {name}", where=region):
            found = ec2.describe_instance_types(InstanceTypes=[name])["InstanceTypes"]
    except AwsError as error:
        if error.code != "InvalidInstanceType":
            raise
        found = []
    if not found:
        raise UnknownTypeError(f"there is no instance type {name!r} in {region}")
    return _parse(found[0])


def known_regions() -> tuple[str, ...]:
    """The regions that the installed boto3 knows for EC2, all partitions, sorted; asks nobody."""
    offline = session()
    names = {
        str(region)
        for partition in offline.get_available_partitions()
        for region in offline.get_available_regions("ec2", partition_name=partition)
    }
    return tuple(sorted(names))


def zones_offering(ec2: Any, names: Sequence[str]) -> tuple[str, ...]:  # noqa: ANN401 - a boto3 client
    """The availability zones of the client's region that offer every one of the types, sorted.

    Raises:
        AwsError: AWS refused or did not answer; `denied` means that the zones are unknown, not that there are none.
    """
    if not names:
        return ()
    wanted = sorted(set(names))
    zones: dict[str, set[str]] = {name: set() for name in wanted}
    with aws_errors("cannot learn which zones offer the instance types", where=str(ec2.meta.region_name)):
        pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": wanted}]
        )
        for page in pages:
            for offering in page["InstanceTypeOfferings"]:
                zones.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    return tuple(sorted(set.intersection(*(zones[name] for name in wanted))))


def _parse(document: dict[str, Any]) -> InstanceType:
    gpus = document.get("GpuInfo", {}).get("Gpus", [])
    first = gpus[0] if gpus else {}
    return InstanceType(
        name=document["InstanceType"],
        cpu_count=document["VCpuInfo"]["DefaultVCpus"],
        memory_bytes=document["MemoryInfo"]["SizeInMiB"] * MIB,
        gpu_count=sum(gpu.get("Count", 0) for gpu in gpus),
        gpu_model=first.get("Name"),
        gpu_manufacturer=first.get("Manufacturer"),
        gpu_memory_bytes=document.get("GpuInfo", {}).get("TotalGpuMemoryInMiB", 0) * MIB,
        architectures=tuple(document.get("ProcessorInfo", {}).get("SupportedArchitectures", ())),
        network=document.get("NetworkInfo", {}).get("NetworkPerformance", "unknown"),
    )
