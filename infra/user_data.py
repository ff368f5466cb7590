"""The nodes' user data: boot_script.py with its settings filled in."""

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic.alias_generators import to_camel

from contract import names

MAX_BYTES = 16_384
"""AWS's limit on user data before its encoding."""
_TEMPLATE = Path(__file__).with_name("boot_script.py")
_MARK = '"@SETTINGS@"'


@dataclass(frozen=True, kw_only=True)
class BootSettings:
    """What a node's first boot needs to know. No secret, and no deadline: that is in the instance's tag.

    Attributes:
        region: of the bucket.
        bucket: where the host key is published.
        host_key_object: its key there; INSTANCE_ID stands for the node's own id.
        endpoint_url: of S3 in rehearsal; None for AWS itself.
        dns_suffix: of AWS's services.
        publish_seconds: how long publishing is tried.
        grace_seconds: how long a node lives that never learns its deadline.
    """

    region: str
    bucket: str
    host_key_object: str
    endpoint_url: str | None = None
    dns_suffix: str = "amazonaws.com"
    publish_seconds: float = 600
    grace_seconds: float = 3600
    deadline_tag: str = names.TAG_DEADLINE
    imds_url: str = "http://169.254.169.254"
    host_key_file: str = "/etc/ssh/ssh_host_ed25519_key.pub"
    state_dir: str = names.NODE_STATE_DIR
    unit_dir: str = "/etc/systemd/system"
    run_dir: str = "/run"


def boot_settings(*, region: str, bucket: str, cluster_id: str, role_id: str, endpoint_url: str | None) -> BootSettings:
    """Settings of a cluster's nodes.

    Args:
        region: the cluster's.
        bucket: the results bucket.
        cluster_id: the cluster.
        role_id: unique id of the instance role (AROA…), the first half of what IAM calls aws:userid.
        endpoint_url: of the rehearsal's AWS; None for AWS itself.
    """
    return BootSettings(
        region=region,
        bucket=bucket,
        host_key_object=names.host_key_object(cluster_id, f"{role_id}:INSTANCE_ID"),
        endpoint_url=endpoint_url,
        dns_suffix="amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com",
    )


def render(settings: BootSettings) -> str:
    """The user data; the same settings give the same text."""
    document = json.dumps({to_camel(key): value for key, value in asdict(settings).items()}, sort_keys=True)
    return _template().replace(_MARK, repr(document))


@cache
def _template() -> str:
    return _TEMPLATE.read_text(encoding="utf-8")
