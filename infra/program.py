"""From configuration to cluster: checks first, then every resource in its order, then one output."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pulumi
from pydantic import ValidationError

from account import ami, prices
from account.clients import endpoint_from_environment
from contract import names
from contract.errors import ConfigError, RayrigError
from contract.inventory import Access, Inventory, Ports
from contract.inventory import Image as InventoryImage
from contract.inventory import Storage as InventoryStorage
from contract.resources import Home
from infra.aws_provider import aws_provider
from infra.config import read_config
from infra.custom import Cluster, RayFleet, RayHead
from infra.engine_stop import end_quietly
from infra.facts import AccountFacts, gather
from infra.firewall import Firewall, FirewallArgs
from infra.identity import Identity, IdentityArgs
from infra.network import Network, NetworkArgs
from infra.nodes import Machine, Nodes, NodesArgs, plan_nodes
from infra.rules import Level, check_account, check_spec
from infra.spec import ClusterSpec, load_spec
from infra.ssh_key import public_key
from infra.storage import Storage, StorageArgs
from infra.tags import Tags
from infra.user_data import boot_settings, render

MESSAGE_SHOWN = 32
"""Exit code by which Pulumi's Python host adds nothing to what was logged."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A spec that passed every rule, with what the rules needed to know."""

    spec: ClusterSpec
    facts: AccountFacts
    public_key: str
    stack: str

    @property
    def home(self) -> Home:
        """Where the cluster lives."""
        return Home(account_id=self.facts.caller.account_id, region=self.spec.region, endpoint=self.facts.endpoint)


def run() -> None:
    """The whole program; ends it with readable messages when the spec, the account or the machine do not fit."""
    end_quietly()
    build(check(stack=pulumi.get_stack()))


def check(*, stack: str) -> Checked:
    """Everything that can be known before the first resource; logs what it finds and ends the program on errors."""
    loaded = load_spec(read_config())
    findings = check_spec(loaded)
    problems = [finding.problem for finding in findings if finding.level is Level.ERROR]
    key = ""
    try:
        key = public_key()
    except ConfigError as error:
        problems.append(error)
    _warn(finding.problem for finding in findings if finding.level is Level.WARNING)
    if problems:
        _end(problems)
    try:
        facts = gather(loaded.spec, endpoint_from_environment())
    except RayrigError as error:
        _end([error])
    findings = check_account(loaded.spec, facts)
    _warn(finding.problem for finding in findings if finding.level is Level.WARNING)
    if problems := [finding.problem for finding in findings if finding.level is Level.ERROR]:
        _end(problems)
    return Checked(spec=loaded.spec, facts=facts, public_key=key, stack=stack)


def build(checked: Checked) -> None:
    """Registers every resource and the `cluster` output."""
    spec, home = checked.spec, checked.home
    cluster = Cluster(
        "cluster",
        {
            "home": home.to_wire(),
            "stack": checked.stack,
            "owner": checked.facts.caller.owner,
            "ttlHours": spec.ttl_hours,
        },
        # The owner is who made it; a colleague's `up` must not change every tag.
        pulumi.ResourceOptions(ignore_changes=["owner"]),
    )
    tags = Tags(
        cluster_id=cluster.cluster_id,
        owner=cluster.owner,
        deadline=cluster.deadline,
        stack=checked.stack,
        extra=spec.tags,
    )
    options = pulumi.ResourceOptions(providers=[aws_provider(home)])
    network = Network(
        "network",
        NetworkArgs(
            cluster=cluster,
            tags=tags,
            vpc_cidr=spec.vpc_cidr,
            subnet_cidr=spec.subnet_cidr,
            availability_zone=checked.facts.zones[0] if checked.facts.zones else None,
        ),
        options,
    )
    firewall = Firewall(
        "firewall",
        FirewallArgs(cluster=cluster, tags=tags, vpc_id=network.vpc.id, access_cidr=spec.access_cidr),
        options,
    )
    storage = Storage(
        "storage",
        StorageArgs(
            cluster=cluster,
            home=home,
            stack=checked.stack,
            bucket=spec.bucket(home.account_id),
            keep=spec.keep_results,
        ),
        options,
    )
    identity = Identity(
        "identity",
        IdentityArgs(
            cluster=cluster,
            tags=tags,
            bucket_arn=storage.results.arn,
            runs_prefix=storage.runs_prefix,
            public_key=checked.public_key,
        ),
        options,
    )
    user_data = pulumi.Output.all(storage.results.bucket, cluster.cluster_id, identity.role.unique_id).apply(
        lambda known: render(
            boot_settings(
                region=home.region,
                bucket=known[0],
                cluster_id=known[1],
                role_id=known[2],
                endpoint_url=home.endpoint.url,
            )
        )
    )
    nodes = Nodes(
        "nodes",
        NodesArgs(
            cluster=cluster,
            tags=tags,
            home=home,
            plans=plan_nodes(
                head_type=spec.head_type,
                worker_type=spec.worker_type,
                workers=spec.workers,
                types={name: found for name, found in checked.facts.types.items() if found is not None},
                amis=checked.facts.amis,
            ),
            needed_at_boot=[*network.ways_out, *firewall.rules, identity.policy, storage.results],
            subnet_id=network.subnet.id,
            security_group_id=firewall.group.id,
            key_name=identity.key_pair.key_name,
            instance_profile=identity.profile.name,
            role_id=identity.role.unique_id,
            user_data=user_data,
            bucket=storage.results.bucket,
            image=spec.image,
            root_gib=spec.root_gib,
        ),
        options,
    )
    ray = _ray(checked, cluster, storage, nodes)
    _log_price(checked)
    pulumi.export(
        "cluster", _inventory(checked, cluster=cluster, network=network, storage=storage, nodes=nodes, ray=ray)
    )


def _ray(checked: Checked, cluster: Cluster, storage: Storage, nodes: Nodes) -> RayFleet:
    """Ray's head, then its workers and the proof that all of it works."""
    head: Machine = nodes.head
    common: dict[str, pulumi.Input[Any]] = {
        "home": checked.home.to_wire(),
        "clusterId": cluster.cluster_id,
        "head": head.wire,
        "user": ami.USER,
        "image": checked.spec.image,
        "ports": Ports().to_wire(),
        "healthCheck": checked.spec.ray_health_check.to_wire(),
        "storage": pulumi.Output.all(storage.results.bucket, cluster.cluster_id).apply(
            lambda known: _storage(checked, bucket=known[0], cluster_id=known[1]).to_wire()
        ),
    }
    ray_head = RayHead(
        "ray-head",
        common,
        pulumi.ResourceOptions(
            depends_on=[cluster, head.setup],
            deleted_with=head.instance,
            custom_timeouts=pulumi.CustomTimeouts(create="15m", update="15m"),
        ),
    )
    return RayFleet(
        "ray",
        {**common, "workers": [worker.wire for worker in nodes.workers]},
        pulumi.ResourceOptions(
            depends_on=[cluster, ray_head, *(machine.setup for machine in nodes.machines)],
            deleted_with=head.instance,
            custom_timeouts=pulumi.CustomTimeouts(create="30m", update="30m"),
        ),
    )


def _inventory(
    checked: Checked, *, cluster: Cluster, network: Network, storage: Storage, nodes: Nodes, ray: RayFleet
) -> pulumi.Output[dict[str, Any]]:
    """The `cluster` output; known once the cluster is proven ready."""

    def compose(known: dict[str, Any]) -> dict[str, Any]:
        try:
            return Inventory(
                cluster_id=known["cluster_id"],
                stack=checked.stack,
                account_id=checked.home.account_id,
                region=checked.home.region,
                availability_zone=known["zone"],
                endpoint=checked.home.endpoint,
                nodes=known["nodes"],
                access=Access(user=ami.USER, cidr=checked.spec.access_cidr),
                image=InventoryImage(reference=checked.spec.image, versions=known["versions"]),
                health_check=checked.spec.ray_health_check,
                storage=_storage(checked, bucket=known["bucket"], cluster_id=known["cluster_id"]),
                deadline=known["deadline"],
                price_usd_per_hour=_price(checked),
            ).to_wire()
        except ValidationError as error:
            why = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise pulumi.RunError(f"the cluster is up, but its inventory is not valid. {why}") from error

    return pulumi.Output.all(
        cluster_id=cluster.cluster_id,
        deadline=cluster.deadline,
        zone=network.subnet.availability_zone,
        bucket=storage.results.bucket,
        nodes=[machine.wire for machine in nodes.machines],
        versions=ray.versions,
    ).apply(compose)


def _storage(checked: Checked, *, bucket: str, cluster_id: str) -> InventoryStorage:
    return InventoryStorage(
        bucket=bucket,
        results_uri=f"s3://{bucket}/{names.runs_prefix(checked.stack).rstrip('/')}",
        cluster_uri=f"s3://{bucket}/{names.cluster_prefix(cluster_id).rstrip('/')}",
    )


def _price(checked: Checked) -> float | None:
    spec = checked.spec
    return prices.cluster_usd_per_hour([spec.head_type, *[spec.worker_type] * spec.workers], spec.region)


def _log_price(checked: Checked) -> None:
    price, hours = _price(checked), checked.spec.ttl_hours
    if price is None:
        pulumi.log.info(f"price: unknown, since the table of {prices.table().read_on} lacks a type or this region")
    else:
        pulumi.log.info(
            f"price: about ${price:.2f} per hour, ${price * hours:.2f} for {hours:g} hours "
            f"(list prices of {prices.table().read_on} for instances and addresses; disks and traffic not counted)"
        )


def _warn(problems: Iterable[RayrigError]) -> None:
    for problem in problems:
        pulumi.log.warn(str(problem))


def _end(problems: Sequence[RayrigError]) -> NoReturn:
    """Ends the program with one message per problem and no traceback."""
    for problem in problems:
        pulumi.log.error(str(problem))
    raise SystemExit(MESSAGE_SHOWN)
