"""What the person asks for: the stack's configuration as one typed, frozen object."""

import difflib
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from contract import names
from contract.errors import ConfigError
from contract.inventory import HealthCheck

NAMESPACE = "rayrig"
REGION_KEY = "aws:region"
SUBNET_PREFIX = 20
"""The subnet's size within a bigger VPC: 4,091 addresses."""
MAX_TTL_HOURS = 720
"""30 days; without an end there is no guard against a forgotten cluster."""

_REGION = re.compile(r"^[a-z]{2}(-[a-z]+)+-\d{1,2}$")
_INSTANCE_TYPE = re.compile(r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$")
_BUCKET = re.compile(r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$")
_RESERVED_BUCKET = re.compile(r"^(xn--|sthree-|amzn-s3-demo-).*|.*(-s3alias|--ol-s3|--x-s3|--table-s3)$")
_DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")


def _region(value: str) -> str:
    if not _REGION.match(value):
        raise ValueError("a region looks like eu-west-1")
    return value


def _cidr(value: str) -> str:
    try:
        interface = ipaddress.ip_interface(value)
    except ValueError:
        raise ValueError("not an address block such as 203.0.113.7/32") from None
    if interface.ip != interface.network.network_address:
        raise ValueError(
            f"its address lies inside the block: write {interface.network}, or {interface.ip}/{interface.max_prefixlen}"
        )
    return str(interface.network)


def _instance_type(value: str) -> str:
    if not _INSTANCE_TYPE.match(value):
        raise ValueError("an instance type looks like g5.xlarge")
    return value


def _image(value: str) -> str:
    repository, at, digest = value.partition("@")
    if not at:
        raise ValueError("the image is given by tag, which can move: give its digest, REPOSITORY@sha256:…")
    if not repository or any(c.isspace() for c in repository):
        raise ValueError("before the @ stands no repository")
    if not _DIGEST.match(digest):
        raise ValueError(
            f"the digest is not sha256: and 64 digits 0-9 a-f ({len(digest.removeprefix('sha256:'))} seen)"
        )
    return value


def _bucket(value: str) -> str:
    if not _BUCKET.match(value):
        raise ValueError("a bucket name has 3 to 63 characters a-z, 0-9 and -, with - neither first nor last")
    if _RESERVED_BUCKET.match(value):
        raise ValueError("AWS reserves names of this form")
    return value


class ClusterSpec(BaseModel):
    """Everything that a person can set, with unit and default; on the wire `rayrig:KEY`, camelCase.

    Only the region, `accessCidr` and `image` have no default.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
    )

    region: Annotated[str, AfterValidator(_region)] = Field(
        description="AWS region (the key is aws:region)", examples=["eu-west-1"]
    )
    access_cidr: Annotated[str, AfterValidator(_cidr)] = Field(
        description="IPv4 block from which SSH reaches the nodes, such as 203.0.113.7/32", examples=["YOUR-ADDRESS/32"]
    )
    head_type: Annotated[str, AfterValidator(_instance_type)] = Field(
        default="m7i.large", description="EC2 instance type of the head", examples=["m7i.large"]
    )
    worker_type: Annotated[str, AfterValidator(_instance_type)] = Field(
        default="g4dn.xlarge",
        description="EC2 instance type of every worker, with or without GPUs",
        examples=["g5.xlarge"],
    )
    workers: int = Field(default=2, ge=0, description="number of workers", examples=[2])
    image: Annotated[str, AfterValidator(_image)] = Field(
        description="container image of every node, by digest", examples=["REPOSITORY@sha256:DIGEST"]
    )
    storage: Annotated[str, AfterValidator(_bucket)] | None = Field(
        default=None,
        description="name of the results bucket, made or adopted; by default one per account and region",
        examples=["my-results"],
    )
    keep_results: bool = Field(
        default=True,
        description="whether `pulumi destroy` leaves this stack's results in the bucket",
        examples=["true"],
    )
    ttl_hours: float = Field(
        default=12, gt=0, le=MAX_TTL_HOURS, description="hours until the cluster ends itself", examples=[12]
    )
    root_gib: int = Field(
        default=100, ge=8, le=16384, description="size of every node's root disk in GiB", examples=[100]
    )
    vpc_cidr: Annotated[str, AfterValidator(_cidr)] = Field(
        default="10.77.0.0/16", description="IPv4 block of the cluster's own network", examples=["10.77.0.0/16"]
    )
    ray_health_check: HealthCheck = Field(
        default_factory=HealthCheck,
        description="Ray's node health check: initialDelayMs, periodMs, timeoutMs (milliseconds), failureThreshold",
    )
    tags: dict[str, str] = Field(default_factory=dict, description="further tags on everything that AWS can tag")

    @property
    def subnet_cidr(self) -> str:
        """The block of the one subnet: the VPC's first /20, or all of a smaller VPC."""
        vpc = ipaddress.IPv4Network(self.vpc_cidr)
        return str(vpc if vpc.prefixlen >= SUBNET_PREFIX else next(vpc.subnets(new_prefix=SUBNET_PREFIX)))

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The instance types in use, the head's first, each once."""
        return tuple(dict.fromkeys((self.head_type, *([self.worker_type] if self.workers else []))))

    def bucket(self, account_id: str) -> str:
        """Name of the results bucket."""
        return self.storage or names.results_bucket_name(account_id, self.region)


@dataclass(frozen=True, kw_only=True)
class LoadedSpec:
    """A spec with what was wrong in it.

    Attributes:
        spec: the valid fields as given; a wrong one has its default, or is missing where it has none.
        wrong: names of the fields that are not to be trusted in `spec`.
        problems: one error per finding, empty when the spec is whole.
    """

    spec: ClusterSpec
    wrong: frozenset[str] = frozenset()
    problems: tuple[ConfigError, ...] = field(default=())


def load_spec(config: Mapping[str, str]) -> LoadedSpec:
    """Reads the spec from a stack's configuration.

    Args:
        config: the whole configuration as Pulumi gives it: `namespace:key` to text, structured values as JSON.

    Returns:
        The spec and every finding at once.
    """
    by_key = {config_key(name): name for name in ClusterSpec.model_fields}
    values: dict[str, Any] = {}
    problems: list[ConfigError] = []
    wrong: set[str] = set()
    for key, text in config.items():
        name = by_key.get(key)
        if name is None:
            problems += _unknown(key, by_key)
        elif text.strip():
            try:
                values[name] = _decode(name, text)
            except json.JSONDecodeError as error:
                wrong.add(name)
                problems.append(_wrong_value(name, text, f"not a JSON object ({error})"))
    try:
        return LoadedSpec(spec=ClusterSpec.model_validate(values), wrong=frozenset(wrong), problems=tuple(problems))
    except ValidationError as error:
        for detail in error.errors():
            name = _field_of(detail)
            if name not in wrong:
                problems.append(_problem(name, detail, values))
        wrong |= {_field_of(detail) for detail in error.errors()}
    valid = {name: value for name, value in _validated(values, wrong).items() if name not in wrong}
    return LoadedSpec(spec=ClusterSpec.model_construct(**valid), wrong=frozenset(wrong), problems=tuple(problems))


def config_key(name: str) -> str:
    """The configuration key of a field of ClusterSpec, with its namespace."""
    return REGION_KEY if name == "region" else f"{NAMESPACE}:{to_camel(name)}"


def set_command(name: str, value: object | None = None) -> str:
    """The command that sets a field, with the given value or an example."""
    examples = ClusterSpec.model_fields[name].examples or ["…"]
    key = config_key(name).removeprefix(f"{NAMESPACE}:")
    return f"pulumi config set {key} {examples[0] if value is None else value}"


def _decode(name: str, text: str) -> object:
    if name not in {"ray_health_check", "tags"}:
        return text.strip()
    return json.loads(text)


def _validated(values: Mapping[str, Any], wrong: set[str]) -> dict[str, Any]:
    """The right fields in their own types, so that rules can run on them."""
    stand_ins = {"region": "eu-west-1", "access_cidr": "192.0.2.1/32", "image": f"stand-in@sha256:{'0' * 64}"}
    right = {name: value for name, value in values.items() if name not in wrong}
    spec = ClusterSpec.model_validate(stand_ins | right)
    return {name: getattr(spec, name) for name in ClusterSpec.model_fields}


def _field_of(detail: ErrorDetails) -> str:
    """The field behind a pydantic finding, whose location holds the alias or the name."""
    first = str(detail["loc"][0])
    return next(name for name in ClusterSpec.model_fields if first in {name, to_camel(name)})


def _problem(name: str, detail: ErrorDetails, values: Mapping[str, Any]) -> ConfigError:
    if name not in values:
        what = ClusterSpec.model_fields[name].description
        return ConfigError(f"is not set: {what}", where=config_key(name), next_step=set_command(name))
    reason = str(detail.get("ctx", {}).get("error") or detail["msg"])
    path = ".".join(str(part) for part in detail["loc"][1:] if part != "[key]")
    if path:
        where = f"{config_key(name)}.{path}"
        verb, value = ("rm", "") if detail["type"] == "extra_forbidden" else ("set", " VALUE")
        command = f"pulumi config {verb} --path {to_camel(name)}.{path}{value}"
        return ConfigError(f"{detail['input']!r} is wrong", where=where, why=reason, next_step=command)
    return _wrong_value(name, str(values[name]), reason)


def _wrong_value(name: str, value: str, reason: str) -> ConfigError:
    return ConfigError(f"{value!r} is wrong", where=config_key(name), why=reason, next_step=set_command(name))


def _unknown(key: str, known: Mapping[str, str]) -> list[ConfigError]:
    namespace, _, name = key.partition(":")
    if namespace == "aws":
        return [
            ConfigError(
                "is not used: rayrig takes only the region from here, credentials and profile from the environment",
                where=key,
                next_step=f"pulumi config rm {key}",
            )
        ]
    if namespace != NAMESPACE:
        return []
    short = [k.removeprefix(f"{NAMESPACE}:") for k in known]
    lowered = {k.lower(): k for k in short}
    near = [lowered[match] for match in difflib.get_close_matches(name.lower(), lowered, n=1)]
    remove = f"pulumi config rm {name}"
    if near:
        why, next_step = f"the nearest is {near[0]}", f"{remove}; pulumi config set {near[0]} …"
    else:
        why, next_step = f"the keys are {', '.join(sorted(short))}", remove
    return [ConfigError("there is no such key", where=key, why=why, next_step=next_step)]
