"""What the account and region say about a spec; asked once per run, in parallel."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from account import ami, clients, identity, offerings
from account.ami import Ami
from account.clients import AwsError
from account.identity import Caller
from account.offerings import InstanceType, UnknownTypeError
from contract.inventory import Endpoint
from infra.spec import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class AccountFacts:
    """AWS's answers.

    Attributes:
        caller: whose credentials these are.
        endpoint: which AWS answered.
        types: each instance type of the spec; None where the region does not know it.
        zones: the zones that offer all known types; None when we may not ask (unknown is not "none").
        amis: the machine image of each known type.
    """

    caller: Caller
    endpoint: Endpoint
    types: Mapping[str, InstanceType | None]
    zones: tuple[str, ...] | None
    amis: Mapping[str, Ami]


def gather(spec: ClusterSpec, endpoint: Endpoint) -> AccountFacts:
    """Asks AWS about the spec.

    Raises:
        ConfigError: no usable credentials.
        CloudError: AWS refused, or did not answer, something that cannot be done without.
    """
    sts, ec2, ssm = (clients.client(name, region=spec.region, endpoint=endpoint) for name in ("sts", "ec2", "ssm"))
    names = spec.instance_types
    with ThreadPoolExecutor(max_workers=4) as pool:
        # First and alone: without credentials every other answer would be the same error again.
        caller = identity.caller(sts)
        zones = pool.submit(_zones, ec2, names)
        types = dict(zip(names, pool.map(lambda name: _type(ec2, name), names), strict=True))
        gpus = {name: found.gpu_count > 0 for name, found in types.items() if found is not None}
        by_kind = dict(
            zip(
                kinds := sorted(set(gpus.values())),
                pool.map(lambda gpu: ami.resolve(ssm, ec2, gpu=gpu), kinds),
                strict=True,
            )
        )
        return AccountFacts(
            caller=caller,
            endpoint=endpoint,
            types=types,
            zones=zones.result(),
            amis={name: by_kind[gpu] for name, gpu in gpus.items()},
        )


def _type(ec2: Any, name: str) -> InstanceType | None:  # noqa: ANN401 - a boto3 client
    try:
        return offerings.describe_instance_type(ec2, name)
    except UnknownTypeError:
        return None


def _zones(ec2: Any, names: tuple[str, ...]) -> tuple[str, ...] | None:  # noqa: ANN401 - a boto3 client
    try:
        return offerings.zones_offering(ec2, names)
    except AwsError as error:
        if error.denied:
            return None
        raise
