"""Which machine image a node boots, by AWS's public SSM parameters."""

from dataclasses import dataclass
from typing import Any

from account.clients import AwsError, aws_errors
from contract.errors import CloudError

CPU_PARAMETER = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
"""Plain Ubuntu 24.04."""
GPU_PARAMETER = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
"""AWS's Deep Learning base AMI: NVIDIA driver, Docker and the container toolkit are in it."""
USER = "ubuntu"
"""The login of both images."""

GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class Ami:
    """A machine image."""

    id: str
    root_bytes: int | None
    """Size of its root snapshot: a root volume can't be smaller. None when AWS did not tell."""


def resolve(ssm: Any, ec2: Any, *, gpu: bool) -> Ami:  # noqa: ANN401 - boto3 clients
    """Finds the newest image for nodes with or without GPUs.

    Raises:
        CloudError: the parameter cannot be read or is not there.
    """
    name = GPU_PARAMETER if gpu else CPU_PARAMETER
    region = str(ssm.meta.region_name)
    try:
        with aws_errors(f"cannot read the public parameter {name}", where=region):
            ami_id = str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    except AwsError as error:
        if error.not_found:
            raise CloudError(
                f"no machine image is published under {name}", where=region, next_step="choose another region"
            ) from error
        raise
    return Ami(id=ami_id, root_bytes=_root_bytes(ec2, ami_id))


def _root_bytes(ec2: Any, ami_id: str) -> int | None:  # noqa: ANN401 - a boto3 client
    """Size of an image's root snapshot; None when we may not ask or AWS does not say."""
    try:
        with aws_errors(f"cannot describe the machine image {ami_id}"):
            images = ec2.describe_images(ImageIds=[ami_id])["Images"]
    except AwsError as error:
        if error.denied:
            return None
        raise
    for image in images:
        for mapping in image.get("BlockDeviceMappings", ()):
            if mapping.get("DeviceName") == image.get("RootDeviceName") and "VolumeSize" in mapping.get("Ebs", {}):
                return int(mapping["Ebs"]["VolumeSize"]) * GIB
    return None
