"""What the metadata service answers: an instance's facts as a tree of names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.nodes.instances import Instance

Tree = Mapping[str, "Tree | str"]


@dataclass(frozen=True, kw_only=True)
class Role:
    """The instance profile and its one role."""

    profile_arn: str
    profile_id: str
    name: str
    arn: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that a tree is made of, credentials apart."""

    instance: Instance
    account_id: str
    region: str
    vpc_cidr: str
    subnet_cidr: str
    public_key: str | None
    role: Role | None
    spot_notice: str | None


def meta_data(facts: Facts) -> Tree:
    """The tree below `meta-data/`; a leaf is text, anything else is listed."""
    i = facts.instance
    tree: dict[str, Tree | str] = {
        "ami-id": i.image_id,
        "ami-launch-index": "0",
        "hostname": _domain(facts),
        "instance-id": i.instance_id,
        "instance-life-cycle": "on-demand",
        "instance-type": i.instance_type,
        "local-hostname": _domain(facts),
        "local-ipv4": i.private_ip,
        "mac": i.mac,
        "network": {"interfaces": {"macs": {i.mac: _interface(facts)}}},
        "placement": {"availability-zone": i.availability_zone, "region": facts.region},
        "security-groups": "\n".join(i.group_names),
        "services": {"domain": "amazonaws.com", "partition": "aws"},
    }
    if i.public_ip:
        tree |= {"public-ipv4": i.public_ip}
    if facts.public_key and i.key_name:
        tree["public-keys"] = {"0": {"openssh-key": facts.public_key}}
    if i.tags_in_metadata:
        tree["tags"] = {"instance": dict(i.tags)}
    if facts.role:
        tree["iam"] = {"info": _role_info(facts.role), "security-credentials": {facts.role.name: ""}}
    if facts.spot_notice:
        tree["spot"] = {"instance-action": facts.spot_notice}
    return tree


def identity_document(facts: Facts) -> str:
    """`dynamic/instance-identity/document`."""
    i = facts.instance
    document = {
        "accountId": facts.account_id,
        "architecture": "x86_64",
        "availabilityZone": i.availability_zone,
        "imageId": i.image_id,
        "instanceId": i.instance_id,
        "instanceType": i.instance_type,
        "privateIp": i.private_ip,
        "region": facts.region,
        "version": "2017-09-30",
    }
    return json.dumps(document, indent=2)


def credentials_document(credentials: Mapping[str, Any], *, updated: str) -> str:
    """`iam/security-credentials/ROLE` from what STS's AssumeRole answered."""
    document = {
        "Code": "Success",
        "LastUpdated": updated,
        "Type": "AWS-HMAC",
        "AccessKeyId": credentials["AccessKeyId"],
        "SecretAccessKey": credentials["SecretAccessKey"],
        "Token": credentials["SessionToken"],
        "Expiration": credentials["Expiration"].strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return json.dumps(document, indent=2)


def look_up(facts: Facts, path: str) -> str | None:
    """The text at a path below `meta-data/`, a listing where it ends on a branch; None where there is nothing."""
    node: Tree | str = meta_data(facts)
    names = [part for part in path.split("/") if part]
    for name in names:
        if isinstance(node, str) or name not in node:
            return None
        node = node[name]
    if isinstance(node, str):
        return node
    if names == ["public-keys"]:
        return f"0={facts.instance.key_name}"
    return "\n".join(name if isinstance(value, str) else f"{name}/" for name, value in node.items())


def _domain(facts: Facts) -> str:
    return f"{facts.instance.hostname}.{facts.region}.compute.internal"


def _interface(facts: Facts) -> Tree:
    i = facts.instance
    public = {"public-ipv4s": i.public_ip} if i.public_ip else {}
    return {
        "device-number": "0",
        "local-hostname": _domain(facts),
        "local-ipv4s": i.private_ip,
        "mac": i.mac,
        "owner-id": facts.account_id,
        **public,
        "security-group-ids": "\n".join(i.group_ids),
        "security-groups": "\n".join(i.group_names),
        "subnet-id": i.subnet_id,
        "subnet-ipv4-cidr-block": facts.subnet_cidr,
        "vpc-id": i.vpc_id,
        "vpc-ipv4-cidr-block": facts.vpc_cidr,
    }


def _role_info(role: Role) -> str:
    info = {"Code": "Success", "InstanceProfileArn": role.profile_arn, "InstanceProfileId": role.profile_id}
    return json.dumps(info, indent=2)
