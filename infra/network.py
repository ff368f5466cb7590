"""The cluster's own network: one VPC, one public subnet, the way out."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.custom import Cluster
from infra.tags import Tags


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What Network needs.

    Attributes:
        cluster: everything depends on it directly, so that it is deleted last.
        vpc_cidr: the VPC's block.
        subnet_cidr: the subnet's block within it.
        availability_zone: where the subnet is made; None leaves the choice to AWS.
    """

    cluster: Cluster
    tags: Tags
    vpc_cidr: str
    subnet_cidr: str
    availability_zone: str | None


class Network(pulumi.ComponentResource):
    """VPC, subnet, gateway and routes.

    Attributes:
        vpc: the VPC.
        subnet: its one public subnet.
        ways_out: what a booting node needs in place to reach S3.
    """

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("rayrig:cluster:Network", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=[args.cluster])
        self.vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=args.vpc_cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=args.tags.named("vpc"),
            opts=child,
        )
        self.subnet = aws.ec2.Subnet(
            f"{name}-public",
            vpc_id=self.vpc.id,
            cidr_block=args.subnet_cidr,
            availability_zone=args.availability_zone,
            map_public_ip_on_launch=True,
            tags=args.tags.named("public"),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.cluster],
                # A zone that newly offers a type would otherwise move, and so replace, the whole cluster.
                ignore_changes=["availabilityZone"],
            ),
        )
        gateway = aws.ec2.InternetGateway(
            f"{name}-gateway", vpc_id=self.vpc.id, tags=args.tags.named("gateway"), opts=child
        )
        routes = aws.ec2.RouteTable(f"{name}-public", vpc_id=self.vpc.id, tags=args.tags.named("public"), opts=child)
        out = aws.ec2.Route(
            f"{name}-out",
            route_table_id=routes.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=gateway.id,
            opts=child,
        )
        attached = aws.ec2.RouteTableAssociation(
            f"{name}-public", subnet_id=self.subnet.id, route_table_id=routes.id, opts=child
        )
        self.ways_out: tuple[pulumi.Resource, ...] = (out, attached)
        self.register_outputs({"vpcId": self.vpc.id, "subnetId": self.subnet.id})
