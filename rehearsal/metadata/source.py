"""Whom a caller of the metadata service is, and the facts about it, asked of moto and kept for a second."""

import base64
import threading
import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

from rehearsal.metadata.notices import read_spot_notice
from rehearsal.metadata.tree import Facts, Role, credentials_document
from rehearsal.nodes.instances import UP, Cloud, Instance

FRESH_SECONDS = 1.0
"""How old an answer may be."""
CREDENTIALS_SECONDS = 6 * 3600
"""Life of role credentials, as on EC2."""
RENEW_BEFORE = timedelta(minutes=10)

_T = TypeVar("_T")


class Source:
    """Facts about the instances of one world."""

    def __init__(self, cloud: Cloud, *, account_id: str, notices: Path) -> None:
        self._cloud = cloud
        self._account_id = account_id
        self._notices = notices
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[float, object]] = {}
        self._credentials: dict[tuple[str, str], dict[str, Any]] = {}

    def instance_at(self, address: str) -> Instance | None:
        """The instance that is up and has this private address."""
        # A caller not known yet was launched since the last look: its boot must not wait for the next.
        for seconds in (FRESH_SECONDS, 0.0):
            instances = self._keep("instances", seconds, self._cloud.instances)
            for instance in instances.values():
                if instance.private_ip == address and instance.state in UP:
                    return instance
        return None

    def facts(self, instance: Instance) -> Facts:
        """Everything about an instance but its user data and credentials."""
        forever = float("inf")
        name, subnet, vpc = instance.key_name, instance.subnet_id, instance.vpc_id
        key = self._keep(("key", instance.instance_id), forever, lambda: self._public_key(name)) if name else None
        return Facts(
            instance=instance,
            account_id=self._account_id,
            region=self._cloud.region,
            vpc_cidr=self._keep(("vpc", vpc), forever, lambda: self._vpc_cidr(vpc)),
            subnet_cidr=self._keep(("subnet", subnet), forever, lambda: self._subnet_cidr(subnet)),
            public_key=key,
            role=self._role(instance),
            spot_notice=read_spot_notice(self._notices, instance.instance_id),
        )

    def user_data(self, instance: Instance) -> bytes | None:
        """What the launcher gave, decoded; None when it gave nothing."""
        answer = self._cloud.ec2.describe_instance_attribute(InstanceId=instance.instance_id, Attribute="userData")
        encoded = answer.get("UserData", {}).get("Value")
        return base64.b64decode(encoded) if encoded else None

    def credentials(self, instance: Instance, role: Role) -> str:
        """The role's credentials, made by STS for this instance: AWS then knows the caller as ROLE-ID:INSTANCE-ID."""
        owner = (instance.instance_id, role.arn)
        with self._lock:
            kept = self._credentials.get(owner)
            if kept is None or kept["Expiration"] - RENEW_BEFORE < datetime.now(UTC):
                kept = self._cloud.sts.assume_role(
                    RoleArn=role.arn, RoleSessionName=instance.instance_id, DurationSeconds=CREDENTIALS_SECONDS
                )["Credentials"]
                self._credentials[owner] = kept
        made = kept["Expiration"] - timedelta(seconds=CREDENTIALS_SECONDS)
        return credentials_document(kept, updated=made.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def _role(self, instance: Instance) -> Role | None:
        arn = instance.profile_arn
        return self._keep(("role", arn), FRESH_SECONDS, lambda: self._role_of(arn)) if arn else None

    def _role_of(self, profile_arn: str) -> Role | None:
        try:
            profile = self._cloud.iam.get_instance_profile(InstanceProfileName=profile_arn.rpartition("/")[2])
        except self._cloud.iam.exceptions.NoSuchEntityException:
            return None
        found = profile["InstanceProfile"]
        return next(
            (
                Role(
                    profile_arn=found["Arn"],
                    profile_id=found["InstanceProfileId"],
                    name=role["RoleName"],
                    arn=role["Arn"],
                )
                for role in found["Roles"]
            ),
            None,
        )

    def _public_key(self, name: str) -> str | None:
        found = self._cloud.ec2.describe_key_pairs(
            Filters=[{"Name": "key-name", "Values": [name]}], IncludePublicKey=True
        )["KeyPairs"]
        return str(found[0]["PublicKey"]).strip() if found and found[0].get("PublicKey") else None

    def _vpc_cidr(self, vpc_id: str) -> str:
        return str(self._cloud.ec2.describe_vpcs(VpcIds=[vpc_id])["Vpcs"][0]["CidrBlock"])

    def _subnet_cidr(self, subnet_id: str) -> str:
        return str(self._cloud.ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"][0]["CidrBlock"])

    def _keep(self, key: Hashable, seconds: float, ask: Callable[[], _T]) -> _T:
        # The lock is held while asking: callers that come together ask once.
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept[0] + seconds <= time.monotonic():
                kept = (time.monotonic(), ask())
                self._kept[key] = kept
        return cast("_T", kept[1])
