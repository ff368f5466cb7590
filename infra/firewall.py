"""Who may talk to the nodes: SSH from one block, everything among themselves, and what they may call."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.custom import Cluster
from infra.tags import Tags

SSH = 22
ANYWHERE = "0.0.0.0/0"
WAYS_OUT = {
    "https": (443, "AWS APIs, registries and package mirrors over TLS"),
    "http": (80, "Ubuntu package mirrors, whose packages are signed"),
}
"""Egress to anywhere, by name: port and why. DNS, time and metadata of AWS pass every security group."""


@dataclass(frozen=True, kw_only=True)
class FirewallArgs:
    """What Firewall needs.

    Attributes:
        cluster: everything depends on it directly, so that it is deleted last.
        vpc_id: the VPC of the group.
        access_cidr: from where SSH is open.
    """

    cluster: Cluster
    tags: Tags
    vpc_id: pulumi.Input[str]
    access_cidr: str


class Firewall(pulumi.ComponentResource):
    """One security group for all nodes; its rules are resources of their own, since inline ones would fight them.

    Attributes:
        group: the security group.
        rules: its rules, which a booting node needs in place.
    """

    def __init__(self, name: str, args: FirewallArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("rayrig:cluster:Firewall", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=[args.cluster])
        self.group = aws.ec2.SecurityGroup(
            f"{name}-nodes",
            vpc_id=args.vpc_id,
            description="Nodes of a rayrig cluster",
            tags=args.tags.named("nodes"),
            opts=child,
        )
        ssh = aws.vpc.SecurityGroupIngressRule(
            f"{name}-ssh",
            security_group_id=self.group.id,
            ip_protocol="tcp",
            from_port=SSH,
            to_port=SSH,
            cidr_ipv4=args.access_cidr,
            description="SSH from accessCidr, the only way in from outside",
            tags=args.tags.named("ssh"),
            opts=child,
        )
        # All traffic, not 6379 and 8265 alone: Ray's nodes call each other on many ports and hang without them.
        inside = aws.vpc.SecurityGroupIngressRule(
            f"{name}-inside",
            security_group_id=self.group.id,
            ip_protocol="-1",
            referenced_security_group_id=self.group.id,
            description="Everything from the nodes of this cluster",
            tags=args.tags.named("inside"),
            opts=child,
        )
        # AWS's own allow-all egress is removed by the provider; what is not written here is shut.
        to_inside = aws.vpc.SecurityGroupEgressRule(
            f"{name}-to-inside",
            security_group_id=self.group.id,
            ip_protocol="-1",
            referenced_security_group_id=self.group.id,
            description="Everything to the nodes of this cluster",
            tags=args.tags.named("to-inside"),
            opts=child,
        )
        outside = [
            aws.vpc.SecurityGroupEgressRule(
                f"{name}-to-{kind}",
                security_group_id=self.group.id,
                ip_protocol="tcp",
                from_port=port,
                to_port=port,
                cidr_ipv4=ANYWHERE,
                description=why,
                tags=args.tags.named(f"to-{kind}"),
                opts=child,
            )
            for kind, (port, why) in WAYS_OUT.items()
        ]
        self.rules: tuple[pulumi.Resource, ...] = (ssh, inside, to_inside, *outside)
        self.register_outputs({"groupId": self.group.id})
