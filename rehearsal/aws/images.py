"""Machine images that rayrig asks SSM for and moto lacks: the parameters, and the images behind them."""

from dataclasses import dataclass
from typing import Any

from moto.core.utils import utcnow
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends

CANONICAL_OWNER = "099720109477"
DEEP_LEARNING_OWNER = "898082745236"


@dataclass(frozen=True, kw_only=True)
class PublicImage:
    """One public image. Ids and sizes are the rehearsal's; root devices are Canonical's (the DLAMI is built on it)."""

    parameter: str
    image_id: str
    name: str
    owner_id: str
    root_device: str
    size_gib: int


IMAGES = (
    PublicImage(
        parameter="/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
        image_id="ami-0a11ce0024040001",
        name="ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-rehearsal",
        owner_id=CANONICAL_OWNER,
        root_device="/dev/sda1",
        size_gib=8,
    ),
    PublicImage(
        parameter=("/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"),
        image_id="ami-0a11ce0024040002",
        name="Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) rehearsal",
        owner_id=DEEP_LEARNING_OWNER,
        root_device="/dev/sda1",
        size_gib=75,
    ),
)


class SizedAmi(Ami):  # type: ignore[misc]
    """An image with its own snapshot size and volume type (moto's all say 15 GiB, standard)."""

    def __init__(self, backend: Any, image: PublicImage) -> None:  # noqa: ANN401 - moto's backend
        super().__init__(
            backend,
            image.image_id,
            name=image.name,
            description=image.name,
            owner_id=image.owner_id,
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture="x86_64",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name=image.root_device,
            region_name=f"{backend.region_name}a",
        )
        self.size_gib = image.size_gib
        self.ebs_snapshot.volume.size = image.size_gib

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        """The root volume as DescribeImages shows it."""
        ebs = {
            "SnapshotId": self.ebs_snapshot.id,
            "VolumeSize": self.size_gib,
            "DeleteOnTermination": True,
            "VolumeType": "gp3",
            "Encrypted": False,
        }
        return [{"DeviceName": self.root_device_name, "Ebs": ebs}]


def publish_images(account_id: str, region: str) -> None:
    """Makes the images and their SSM parameters known in one region; a second call changes nothing."""
    ec2 = ec2_backends[account_id][region]
    parameters = ssm_backends[account_id][region]._parameters  # no API seeds /aws
    for image in IMAGES:
        if image.image_id in ec2.amis:
            continue
        ec2.amis[image.image_id] = SizedAmi(ec2, image)
        parameters[image.parameter].append(
            Parameter(
                account_id=account_id,
                name=image.parameter,
                value=image.image_id,
                parameter_type="String",
                description=None,
                allowed_pattern=None,
                keyid=None,
                last_modified_date=utcnow(),
                version=1,
                data_type="aws:ec2:image",
            )
        )
