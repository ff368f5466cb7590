"""Security groups as packet filters of a node: pure text, the input of `iptables-restore --noflush`.

The rules stand in the mangle table at the node's one interface, before and after everything else: like EC2's own
they hold for host processes and containers alike, and neither Docker's chains nor a person's filter rules meet them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from rehearsal.nodes.instances import Instance, Rule, SecurityGroup

INTERFACE = "eth0"
METADATA_ADDRESS = "169.254.169.254"
BOOT_METADATA_PORT = 81
"""Named in node-cloud-init.cfg."""
IN, OUT, DNAT, SNAT = "RIG-IN", "RIG-OUT", "RIG-DNAT", "RIG-SNAT"
_HTTPS = 443
_WITH_PORTS = {"tcp": "tcp", "6": "tcp", "udp": "udp", "17": "udp"}
_ICMP = frozenset({"icmp", "1"})
_ALL = "-1"
_MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Service:
    """A server of the lab, `address:port`; it stands for one of AWS's public HTTPS endpoints."""

    address: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is around every node of a lab."""

    public_cidr: str
    user_address: str
    metadata: Service
    boot_metadata: Service
    """Where cloud-init asks, at METADATA_ADDRESS and BOOT_METADATA_PORT."""
    aws: tuple[Service, ...]
    """Endpoint and registry: reached under a rule that lets HTTPS out to their address."""
    resolvers: tuple[str, ...] = ()
    """The host's name servers, in the place of Amazon's: no security group filters what is asked of them."""


def host_resolvers(resolv_conf: str) -> tuple[str, ...]:
    """IPv4 name servers in the text of a resolv.conf that nodes reach over the network; loopback ones they do not."""
    words = [line.split() for line in resolv_conf.splitlines()]
    given = [w[1] for w in words if len(w) > 1 and w[0] == "nameserver" and ":" not in w[1]]
    return tuple(address for address in given if not IPv4Address(address).is_loopback)


def members_of(instances: Iterable[Instance]) -> dict[str, tuple[str, ...]]:
    """Private addresses of each group's members, sorted: what a reference to a group means."""
    found: dict[str, set[str]] = {}
    for instance in instances:
        for group_id in instance.group_ids:
            found.setdefault(group_id, set()).add(instance.private_ip)
    return {group_id: tuple(sorted(addresses)) for group_id, addresses in found.items()}


def node_rules(
    instance: Instance,
    groups: Mapping[str, SecurityGroup],
    members: Mapping[str, tuple[str, ...]],
    around: Surroundings,
) -> str:
    """The whole of a node's own chains; a node of whose groups nothing is known lets nothing through."""
    mine = [groups[g] for g in instance.group_ids if g in groups]
    ingress = dict.fromkeys(line for g in mine for r in g.ingress for line in _accepts(r, IN, "-s", members))
    egress = dict.fromkeys(line for g in mine for r in g.egress for line in _egress(r, members, around))
    established = "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"
    lines = [
        "*mangle",
        f":{IN} - [0:0]",
        f":{OUT} - [0:0]",
        f"-A {IN} {established}",
        *ingress,
        f"-A {IN} -j DROP",
        f"-A {OUT} {established}",
        _accept_service(around.metadata),
        _accept_service(around.boot_metadata),
        *(f"-A {OUT} -d {r}/32 -p {p} --dport 53 -j ACCEPT" for r in around.resolvers for p in ("udp", "tcp")),
        *egress,
        f"-A {OUT} -j DROP",
        "COMMIT",
        "*nat",
        f":{DNAT} - [0:0]",
        f":{SNAT} - [0:0]",
        *_translations(instance, around),
        "COMMIT",
    ]
    return "\n".join(lines) + "\n"


def _translations(instance: Instance, around: Surroundings) -> Iterator[str]:
    for port, service in ((80, around.metadata), (BOOT_METADATA_PORT, around.boot_metadata)):
        match = f"-d {METADATA_ADDRESS}/32 -p tcp --dport {port}"
        yield f"-A {DNAT} {match} -j DNAT --to-destination {service.address}:{service.port}"
    if instance.public_ip is None:
        return
    # The internet gateway's one-to-one mapping: who calls a public address is seen by the caller's public one.
    yield f"-A {DNAT} -d {instance.public_ip}/32 -j DNAT --to-destination {instance.private_ip}"
    yield f"-A {SNAT} -d {around.user_address}/32 -j RETURN"
    yield f"-A {SNAT} -s {instance.private_ip}/32 -d {around.public_cidr} -j SNAT --to-source {instance.public_ip}"


def _egress(rule: Rule, members: Mapping[str, tuple[str, ...]], around: Surroundings) -> Iterator[str]:
    yield from _accepts(rule, OUT, "-d", members)
    if not _covers_https(rule):
        return
    for service in around.aws:
        reached = any(IPv4Network(f"{service.address}/32").subnet_of(IPv4Network(cidr)) for cidr in rule.cidrs)
        if reached or rule.prefix_lists:
            yield _accept_service(service)


def _covers_https(rule: Rule) -> bool:
    if rule.protocol == _ALL:
        return True
    return _WITH_PORTS.get(rule.protocol) == "tcp" and rule.from_port <= _HTTPS <= rule.to_port


def _accept_service(service: Service) -> str:
    return f"-A {OUT} -d {service.address}/32 -p tcp --dport {service.port} -j ACCEPT"


def _accepts(rule: Rule, chain: str, side: str, members: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    peers = [*rule.cidrs, *(f"{address}/32" for g in rule.group_ids for address in members.get(g, ()))]
    match = _protocol_match(rule)
    for peer in peers:
        yield f"-A {chain} {side} {peer}{match} -j ACCEPT"


def _protocol_match(rule: Rule) -> str:
    if rule.protocol == _ALL:
        return ""
    name = _WITH_PORTS.get(rule.protocol)
    if name is None:
        kind = f" --icmp-type {rule.from_port}" if rule.protocol in _ICMP and rule.from_port >= 0 else ""
        return f" -p {'icmp' if rule.protocol in _ICMP else rule.protocol}{kind}"
    if rule.from_port <= 0 and rule.to_port in {-1, _MAX_PORT}:
        return f" -p {name}"
    ports = str(rule.from_port) if rule.from_port == rule.to_port else f"{rule.from_port}:{rule.to_port}"
    return f" -p {name} --dport {ports}"
