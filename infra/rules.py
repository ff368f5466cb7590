"""What a spec must fulfil before the first resource is made: one class per rule."""

import ipaddress
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from typing_extensions import override

from account import offerings
from account.ami import GIB
from contract.errors import ConfigError
from infra.facts import AccountFacts
from infra.spec import ClusterSpec, LoadedSpec, config_key, set_command

AWS_RESERVED_ADDRESSES = 5
"""Per subnet: network, router, DNS, one for the future, broadcast."""
WIDEST_ACCESS_PREFIX = 8
"""No organisation's address block is wider; what is wider is the world in parts."""
LONG_TTL_HOURS = 72
DOCKER_BRIDGE = ipaddress.IPv4Network("172.17.0.0/16")
"""Docker's default bridge on every node: addresses in it never leave the node."""
PRIVATE = tuple(
    ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
VPC_PREFIXES = range(16, 29)
"""The sizes that AWS takes for a VPC, /16 to /28."""
MAX_TAG_KEY, MAX_TAG_VALUE = 128, 256
TAG_KEY = re.compile(r"^[A-Za-z0-9_.:=+@-]+$")
"""Keys that EC2 takes where instance tags are in the metadata service, as the nodes' are: neither space nor slash."""
RESERVED_TAG_KEYS = frozenset({"Name", ".", "..", "_index"})
MAX_TAGS = 40
"""AWS takes 50 per resource; the rest is for rayrig's own and Name."""


class Level(StrEnum):
    """How serious a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one rule found."""

    level: Level
    problem: ConfigError


class Rule(ABC):
    """A rule that needs the spec alone.

    Attributes:
        level: of everything that it finds.
        reads: the fields of the spec that it reads; the rule is left out while one of them is wrong in itself.
    """

    level: ClassVar[Level] = Level.ERROR
    reads: ClassVar[frozenset[str]]

    @abstractmethod
    def check(self, spec: ClusterSpec) -> Iterator[ConfigError]:
        """Yields one problem per finding."""


class AccountRule(ABC):
    """A rule that needs AWS's answers as well."""

    level: ClassVar[Level] = Level.ERROR

    @abstractmethod
    def check(self, spec: ClusterSpec, facts: AccountFacts) -> Iterator[ConfigError]:
        """Yields one problem per finding."""


class KnownRegion(Rule):
    """The region exists, as far as the installed boto3 knows."""

    reads = frozenset({"region"})

    @override
    def check(self, spec: ClusterSpec) -> Iterator[ConfigError]:
        known = offerings.known_regions()
        if spec.region not in known:
            continent = spec.region.split("-")[0]
            near = [name for name in known if name.startswith(f"{continent}-")] or list(known)
            yield ConfigError(
                f"there is no region {spec.region!r}",
                where=config_key("region"),
                why=f"near it are {', '.join(near)}",
                next_step=f"{set_command('region', near[0])} (or a newer boto3, if the region is new)",
            )


class AccessNotOpen(Rule):
    """SSH is never open to the world."""

    reads = frozenset({"access_cidr"})

    @override
    def check(self, spec: ClusterSpec) -> Iterator[ConfigError]:
        if ipaddress.ip_network(spec.access_cidr).prefixlen < WIDEST_ACCESS_PREFIX:
            yield ConfigError(
                f"{spec.access_cidr} opens SSH to the world",
                where=config_key("access_cidr"),
                next_step=f"{set_command('access_cidr')} with your own address (curl -4 https://checkip.amazonaws.com)",
            )


class AccessIsIPv4(Rule):
    """Nodes have IPv4 addresses only, so an IPv6 block would let nobody in."""

    reads = frozenset({"access_cidr"})

    @override
    def check(self, spec: ClusterSpec) -> Iterator[ConfigError]:
        network = ipaddress.ip_network(spec.access_cidr)
        if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= WIDEST_ACCESS_PREFIX:
            yield ConfigError(
                f"{spec.access_cidr} is IPv6, and the nodes have IPv4 addresses only",
                where=config_key("access_cidr"),
                next_step=f"{set_command('access_cidr')} with your own IPv4 address",
            )


class VpcBlockUsable(Rule):
    """AWS takes the VPC's block, and nothing else on a node claims it."""

    reads = frozenset({"vpc_cidr"})

    @override
    def check(self, spec: ClusterSpec) -> Iterator[ConfigError]:
        network = ipaddress.ip_network(spec.vpc_cidr)
        if not isinstance(network, ipaddress.IPv4Network):
            reason = "a VPC's block is IPv4"
        elif network.prefixlen not in VPC_PREFIXES:
            reason = "AWS takes blocks from /16 to /28"
        elif not any(network.subnet_of(block) for block in PRIVATE):
            reason = (
                "it is not private (10/8, 172.16/12, 192.168/16, 100.64/10), so the real owner could not be reached"
            )
        elif network.overlaps(DOCKER_BRIDGE):
            reason = f"Docker's own bridge on every node is {DOCKER_BRIDGE}"
        else:
            return
        yield ConfigError(
            f"{spec.vpc_cidr} cannot be used",
            where=config_key("vpc_cidr"),
            why=reason,
            next_step=set_command("vpc_cidr"),
        )


class RoomForNodes(Rule):
    """The subnet has an address for every node, and for its replacement beside it."""

    reads = frozenset({"vpc_cidr", "workers"})

    @override
    def check(self, spec: ClusterSpec) -> Iterator[ConfigError]:
        network = ipaddress.ip_network(spec.vpc_cidr)
        if not isinstance(network, ipaddress.IPv4Network) or network.prefixlen not in VPC_PREFIXES:
            return
        room = ipaddress.IPv4Network(spec.subnet_cidr).num_addresses - AWS_RESERVED_ADDRESSES
        needed = 2 * (spec.workers + 1)
        if room < needed:
            yield ConfigError(
                f"{spec.workers} workers do not fit into {spec.subnet_cidr}",
                where=config_key("vpc_cidr"),
                why=f"it has {room} addresses and {needed} are needed: a node stands beside the one that it replaces",
                next_step=set_command("vpc_cidr"),
            )


class ShortLife(Rule):
    """A long TTL is a forgotten bill."""

    level = Level.WARNING
    reads = frozenset({"ttl_hours"})

    @override
    def check(self, spec: ClusterSpec) -> Iterator[ConfigError]:
        if spec.ttl_hours > LONG_TTL_HOURS:
            yield ConfigError(
                f"the cluster ends itself only after {spec.ttl_hours:g} hours",
                where=config_key("ttl_hours"),
                why="whatever it costs goes on until then if it is forgotten",
                next_step=set_command("ttl_hours"),
            )


class TagsAllowed(Rule):
    """AWS takes the person's tags, and they do not shadow rayrig's."""

    reads = frozenset({"tags"})

    @override
    def check(self, spec: ClusterSpec) -> Iterator[ConfigError]:
        where = config_key("tags")
        if len(spec.tags) > MAX_TAGS:
            yield ConfigError(
                f"{len(spec.tags)} tags are more than {MAX_TAGS}", where=where, next_step="leave some out"
            )
        for key, value in spec.tags.items():
            if key.lower().startswith(("aws:", "rayrig:")) or key in RESERVED_TAG_KEYS:
                reason = "rayrig and AWS set tags of this name themselves"
            elif not 1 <= len(key) <= MAX_TAG_KEY or len(value) > MAX_TAG_VALUE:
                reason = "a key has 1 to 128 characters, a value at most 256"
            elif not TAG_KEY.match(key):
                reason = (
                    "in a key a to z, digits and _ . : = + - @ are allowed: nodes read their tags, and so EC2 is strict"
                )
            elif not all(c.isalnum() or c in " _.:/=+-@" for c in value):
                reason = "in a value letters, digits, spaces and _ . : / = + - @ are allowed"
            else:
                continue
            yield ConfigError(
                f"the tag {key!r} cannot be used",
                where=where,
                why=reason,
                next_step=f"pulumi config rm --path 'tags[{key!r}]'",
            )


class TypesOffered(AccountRule):
    """The region has every type, and one zone has them all."""

    @override
    def check(self, spec: ClusterSpec, facts: AccountFacts) -> Iterator[ConfigError]:
        unknown = [name for name, found in facts.types.items() if found is None]
        for name in unknown:
            field = _field(spec, name)
            yield ConfigError(
                f"{spec.region} has no instance type {name!r}", where=config_key(field), next_step=set_command(field)
            )
        if not unknown and facts.zones == ():
            yield ConfigError(
                f"no availability zone of {spec.region} offers all of {', '.join(facts.types)}",
                where=config_key("worker_type"),
                next_step="choose types of one family, or another region",
            )


class ProcessorFits(AccountRule):
    """Image and machine image are x86_64."""

    @override
    def check(self, spec: ClusterSpec, facts: AccountFacts) -> Iterator[ConfigError]:
        for name, found in facts.types.items():
            if found and "x86_64" not in found.architectures:
                field = _field(spec, name)
                yield ConfigError(
                    f"{name} is {' or '.join(found.architectures)}, and the cluster's images are x86_64",
                    where=config_key(field),
                    next_step=set_command(field),
                )


class GpuSupported(AccountRule):
    """Its GPUs have a driver in the machine image: NVIDIA's open one, so not the P3's."""

    @override
    def check(self, spec: ClusterSpec, facts: AccountFacts) -> Iterator[ConfigError]:
        for name, found in facts.types.items():
            if found is None or not found.gpu_count:
                continue
            if (found.gpu_manufacturer or "").upper() != "NVIDIA":
                reason = f"its GPUs are {found.gpu_manufacturer or 'unknown'}'s, and rayrig's images are for NVIDIA's"
            elif name.startswith(("p2.", "p3.", "p3dn.", "g3.", "g3s.", "g2.")):
                reason = "NVIDIA's open driver, which AWS's machine image has, does not support GPUs this old"
            else:
                continue
            field = _field(spec, name)
            yield ConfigError(
                f"{name} cannot be used", where=config_key(field), why=reason, next_step=set_command(field)
            )


class RootDiskHoldsImage(AccountRule):
    """The root disk is at least as big as the machine image's."""

    @override
    def check(self, spec: ClusterSpec, facts: AccountFacts) -> Iterator[ConfigError]:
        sizes = [found.root_bytes for found in facts.amis.values() if found.root_bytes is not None]
        needed = max(sizes, default=0) // GIB
        if spec.root_gib < needed:
            yield ConfigError(
                f"{spec.root_gib} GiB are less than the machine image's {needed} GiB",
                where=config_key("root_gib"),
                next_step=set_command("root_gib", needed),
            )


SPEC_RULES: tuple[Rule, ...] = (
    KnownRegion(),
    AccessNotOpen(),
    AccessIsIPv4(),
    VpcBlockUsable(),
    RoomForNodes(),
    ShortLife(),
    TagsAllowed(),
)
ACCOUNT_RULES: tuple[AccountRule, ...] = (TypesOffered(), ProcessorFits(), GpuSupported(), RootDiskHoldsImage())


def check_spec(loaded: LoadedSpec) -> tuple[Finding, ...]:
    """Everything that can be found without AWS, at once: the spec's own problems, then every rule's."""
    found = [Finding(level=Level.ERROR, problem=problem) for problem in loaded.problems]
    for rule in SPEC_RULES:
        if not rule.reads & loaded.wrong:
            found += _found(rule.level, rule.check(loaded.spec))
    return tuple(found)


def check_account(spec: ClusterSpec, facts: AccountFacts) -> tuple[Finding, ...]:
    """Everything that AWS's answers say against the spec."""
    return tuple(f for rule in ACCOUNT_RULES for f in _found(rule.level, rule.check(spec, facts)))


def _found(level: Level, problems: Iterable[ConfigError]) -> list[Finding]:
    return [Finding(level=level, problem=problem) for problem in problems]


def _field(spec: ClusterSpec, instance_type: str) -> str:
    """Which field names the type; the head's when both do."""
    return "head_type" if spec.head_type == instance_type else "worker_type"
