"""The machines: one head and N workers, each an instance and its setup."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from account.ami import USER, Ami
from account.offerings import InstanceType
from contract.inventory import Node, Role
from contract.resources import Home
from infra.custom import Cluster, NodeSetup
from infra.tags import Tags

ROOT_IOPS = 3000
"""gp3's own; it gives at most 0.25 MiB/s per IOPS, so 3,000 carry up to 750 MiB/s."""
ROOT_MIB_PER_SECOND = 600
"""At gp3's own 125, unpacking a 25 GB image takes 205 s; at 600, AWS's advice for big images, 43 s (derived)."""


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One node as planned: its name, role, hardware and machine image."""

    name: str
    role: Role
    hardware: InstanceType
    ami: Ami

    @property
    def logical_name(self) -> str:
        """Part of its resources' names: a change between GPU and CPU makes new resources, since `ami` is ignored."""
        return f"{self.name}-gpu" if self.hardware.gpu_count else self.name


@dataclass(frozen=True, kw_only=True)
class NodesArgs:
    """What Nodes needs.

    Attributes:
        cluster: everything depends on it directly, so that it is deleted last.
        plans: the head first.
        needed_at_boot: what must be in place before an instance starts.
        user_data: the first-boot script.
        role_id: unique id of the instance role.
        image: the container image, by digest.
        root_gib: size of the root disk.
    """

    cluster: Cluster
    tags: Tags
    home: Home
    plans: Sequence[NodePlan]
    needed_at_boot: Sequence[pulumi.Resource]
    subnet_id: pulumi.Input[str]
    security_group_id: pulumi.Input[str]
    key_name: pulumi.Input[str]
    instance_profile: pulumi.Input[str]
    role_id: pulumi.Input[str]
    user_data: pulumi.Input[str]
    bucket: pulumi.Input[str]
    image: str
    root_gib: int


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An instance, its setup, and what is known of it.

    Attributes:
        wire: contract.inventory.Node on the wire, without and with the host key.
    """

    plan: NodePlan
    instance: aws.ec2.Instance
    setup: NodeSetup
    wire: pulumi.Output[dict[str, Any]]


class Nodes(pulumi.ComponentResource):
    """Head and workers.

    Attributes:
        machines: the head first.
    """

    def __init__(self, name: str, args: NodesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("rayrig:cluster:Nodes", name, None, opts)
        self.machines = tuple(self._machine(name, args, plan) for plan in args.plans)
        self.register_outputs({"instanceIds": [machine.instance.id for machine in self.machines]})

    @property
    def head(self) -> Machine:
        """The head."""
        return self.machines[0]

    @property
    def workers(self) -> tuple[Machine, ...]:
        """All but the head."""
        return self.machines[1:]

    def _machine(self, name: str, args: NodesArgs, plan: NodePlan) -> Machine:
        instance = self._instance(f"{name}-{plan.logical_name}", args, plan)
        described = pulumi.Output.all(instance.id, instance.private_ip, instance.public_ip).apply(
            lambda known: _describe(plan, *known)
        )
        setup = NodeSetup(
            f"{name}-{plan.logical_name}",
            {
                "home": args.home.to_wire(),
                "clusterId": args.cluster.cluster_id,
                "node": described,
                "user": USER,
                "roleId": args.role_id,
                "bucket": args.bucket,
                "image": args.image,
            },
            pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.cluster, instance],
                # `destroy` ends the instance and leaves its setup alone: no SSH at teardown.
                deleted_with=instance,
                custom_timeouts=pulumi.CustomTimeouts(create="30m", update="30m"),
            ),
        )
        wire = pulumi.Output.all(described, setup.host_key).apply(lambda known: {**known[0], "hostKey": known[1]})
        return Machine(plan=plan, instance=instance, setup=setup, wire=wire)

    def _instance(self, name: str, args: NodesArgs, plan: NodePlan) -> aws.ec2.Instance:
        tags = args.tags.node(plan.name, plan.role)
        return aws.ec2.Instance(
            name,
            ami=plan.ami.id,
            instance_type=plan.hardware.name,
            subnet_id=args.subnet_id,
            vpc_security_group_ids=[args.security_group_id],
            key_name=args.key_name,
            iam_instance_profile=args.instance_profile,
            user_data=args.user_data,
            instance_initiated_shutdown_behavior="terminate",
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                # 1: the Ray container shares the host's network, nothing bridged needs the metadata service.
                "http_put_response_hop_limit": 1,
                "instance_metadata_tags": "enabled",
            },
            root_block_device={
                "encrypted": True,
                "volume_type": "gp3",
                "volume_size": args.root_gib,
                "iops": ROOT_IOPS,
                "throughput": ROOT_MIB_PER_SECOND,
                "delete_on_termination": True,
            },
            tags=tags,
            volume_tags=tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.cluster, *args.needed_at_boot],
                # Both count at first boot only: neither a newly published machine image nor a newer rayrig's boot
                # script may replace a running cluster. A new machine gets the newest of both.
                ignore_changes=["ami", "userData"],
                # AWS would stop, change and start it, and it would come back with another public address.
                replace_on_changes=["instanceType"],
                custom_timeouts=pulumi.CustomTimeouts(create="10m", delete="15m"),
            ),
        )


def plan_nodes(
    *, head_type: str, worker_type: str, workers: int, types: Mapping[str, InstanceType], amis: Mapping[str, Ami]
) -> tuple[NodePlan, ...]:
    """The head and `workers` workers, by name and hardware."""
    groups = [("head", Role.HEAD, head_type), *((f"worker-{i + 1}", Role.WORKER, worker_type) for i in range(workers))]
    return tuple(NodePlan(name=name, role=role, hardware=types[kind], ami=amis[kind]) for name, role, kind in groups)


def _describe(plan: NodePlan, instance_id: str, private_ip: str, public_ip: str | None) -> dict[str, Any]:
    """The node as the contract has it, without its host key."""
    node = Node(
        name=plan.name,
        role=plan.role,
        instance_id=instance_id,
        instance_type=plan.hardware.name,
        cpu_count=plan.hardware.cpu_count,
        memory_bytes=plan.hardware.memory_bytes,
        gpu_count=plan.hardware.gpu_count,
        gpu_model=plan.hardware.gpu_model,
        private_ip=private_ip,
        public_ip=public_ip or None,
    )
    return node.to_wire()
