"""Networks: VPC, subnet, internet gateway."""

import ipaddress
from typing import Any

from rehearsal.double import holders, tagging
from rehearsal.double.session import Session, tolerated
from rehearsal.double.table import HOW_TO, REGION, TAGS, UNSIMULATED, Property, Table, at_most_one, exactly_one, one_of
from rehearsal.double.values import Values

VPC_PREFIXES = (16, 28)
"""Smallest and largest prefix of a VPC and a subnet (AWS VPC user guide)."""


def block_of(value: str) -> str | None:
    """What is wrong with an IPv4 block of a VPC or subnet; None when nothing is."""
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        return f"{value!r} is not an IPv4 CIDR block: {error}"
    low, high = VPC_PREFIXES
    return None if low <= network.prefixlen <= high else f"expected a block from /{low} to /{high}, got {value!r}"


def only_off(value: bool) -> str | None:
    """A switch that the rehearsal knows only as off."""
    return f"the rehearsal simulates only false here; add it as {HOW_TO} shows" if value else None


OFF = Property(kind="flag", default=False, local=True, wrong=only_off)


def one(found: list[Any]) -> Any | None:  # noqa: ANN401 - boto's answers
    """The only element, None of none."""
    return found[0] if found else None


class VpcHandler:
    """`aws:ec2/vpc:Vpc`."""

    ATTRIBUTES = {  # noqa: RUF012 - a table
        "enableDnsSupport": ("EnableDnsSupport", "enableDnsSupport"),
        "enableDnsHostnames": ("EnableDnsHostnames", "enableDnsHostnames"),
        "enableNetworkAddressUsageMetrics": ("EnableNetworkAddressUsageMetrics", "enableNetworkAddressUsageMetrics"),
    }

    def create(self, session: Session, inputs: Values) -> str:
        """Makes the network."""
        answer = session.ec2(
            "create_vpc",
            CidrBlock=inputs["cidrBlock"],
            InstanceTenancy=inputs["instanceTenancy"],
            TagSpecifications=tagging.specifications("vpc", tagging.wanted(session, inputs)),
        )
        return str(answer["Vpc"]["VpcId"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Sets its switches."""
        for name in self.ATTRIBUTES:
            if name in inputs:
                self._switch(session, resource_id, name, on=inputs[name])

    def _switch(self, session: Session, vpc_id: str, name: str, *, on: bool) -> None:
        session.ec2("modify_vpc_attribute", VpcId=vpc_id, **{self.ATTRIBUTES[name][0]: {"Value": on}})

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The network, its switches, and what came with it."""
        vpc = one(session.ec2("describe_vpcs", VpcIds=[resource_id])["Vpcs"])
        if vpc is None:
            return None
        of_vpc = [{"Name": "vpc-id", "Values": [resource_id]}]
        switches = {
            name: session.ec2("describe_vpc_attribute", VpcId=resource_id, Attribute=attribute)[key]["Value"]
            for name, (key, attribute) in self.ATTRIBUTES.items()
        }
        main = [*of_vpc, {"Name": "association.main", "Values": ["true"]}]
        default = [*of_vpc, {"Name": "group-name", "Values": ["default"]}]
        acl = [*of_vpc, {"Name": "default", "Values": ["true"]}]
        table = one(session.ec2("describe_route_tables", Filters=main)["RouteTables"])
        group = one(session.ec2("describe_security_groups", Filters=default)["SecurityGroups"])
        access = one(session.ec2("describe_network_acls", Filters=acl)["NetworkAcls"])
        return {
            "arn": session.arn("ec2", f"vpc/{resource_id}"),
            "cidrBlock": vpc["CidrBlock"],
            "instanceTenancy": vpc["InstanceTenancy"],
            "dhcpOptionsId": vpc.get("DhcpOptionsId", ""),
            "ownerId": session.account_id,
            "mainRouteTableId": table["RouteTableId"] if table else "",
            "defaultRouteTableId": table["RouteTableId"] if table else "",
            "defaultSecurityGroupId": group["GroupId"] if group else "",
            "defaultNetworkAclId": access["NetworkAclId"] if access else "",
            "ipv6AssociationId": "",
            "region": session.region,
            **switches,
            **tagging.told(session, vpc.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Switches, tenancy and tags."""
        for name in changed & self.ATTRIBUTES.keys():
            self._switch(session, resource_id, name, on=new[name])
        if changed & {"tags", "tagsAll"}:
            tagging.update_ec2(session, resource_id, old, new)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:  # noqa: ARG002 - the protocol's
        """Deletes it once nothing is in it."""
        session.delete_held(
            f"VPC {resource_id}",
            lambda: session.ec2("delete_vpc", VpcId=resource_id),
            lambda: holders.in_network(session, resource_id),
        )


VPC = Table(
    pulumi_type="aws:ec2/vpc:Vpc",
    what="VPC",
    properties={
        "assignGeneratedIpv6CidrBlock": OFF,
        "cidrBlock": Property(computed=True, wrong=block_of),
        "enableDnsHostnames": Property(kind="flag", computed=True),
        "enableDnsSupport": Property(kind="flag", default=True),
        "enableNetworkAddressUsageMetrics": Property(kind="flag", computed=True),
        "instanceTenancy": Property(default="default", wrong=one_of("default", "dedicated")),
        "ipv4IpamPoolId": UNSIMULATED,
        "ipv4NetmaskLength": UNSIMULATED,
        "ipv6CidrBlock": UNSIMULATED,
        "ipv6CidrBlockNetworkBorderGroup": UNSIMULATED,
        "ipv6IpamPoolId": UNSIMULATED,
        "ipv6NetmaskLength": UNSIMULATED,
        "region": REGION,
        "tags": TAGS,
    },
    outputs=(
        "arn", "defaultNetworkAclId", "defaultRouteTableId", "defaultSecurityGroupId", "dhcpOptionsId",
        "ipv6AssociationId", "mainRouteTableId", "ownerId", "tagsAll",
    ),
    rules=(exactly_one("cidrBlock"),),
    handler=VpcHandler(),
)  # fmt: skip


class SubnetHandler:
    """`aws:ec2/subnet:Subnet`."""

    def create(self, session: Session, inputs: Values) -> str:
        """Makes the subnet."""
        zone = {
            name: inputs[key]
            for key, name in (("availabilityZone", "AvailabilityZone"), ("availabilityZoneId", "AvailabilityZoneId"))
            if key in inputs
        }
        answer = session.ec2(
            "create_subnet",
            VpcId=inputs["vpcId"],
            CidrBlock=inputs["cidrBlock"],
            TagSpecifications=tagging.specifications("subnet", tagging.wanted(session, inputs)),
            **zone,
        )
        return str(answer["Subnet"]["SubnetId"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Public addresses on launch, where asked for."""
        if inputs["mapPublicIpOnLaunch"]:
            self._map_public(session, resource_id, on=True)

    def _map_public(self, session: Session, subnet_id: str, *, on: bool) -> None:
        session.ec2("modify_subnet_attribute", SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": on})

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The subnet."""
        subnet = one(session.ec2("describe_subnets", SubnetIds=[resource_id])["Subnets"])
        if subnet is None:
            return None
        return {
            "arn": session.arn("ec2", f"subnet/{resource_id}"),
            "availabilityZone": subnet["AvailabilityZone"],
            "availabilityZoneId": subnet["AvailabilityZoneId"],
            "cidrBlock": subnet["CidrBlock"],
            "mapPublicIpOnLaunch": subnet["MapPublicIpOnLaunch"],
            "privateDnsHostnameTypeOnLaunch": "ip-name",
            "vpcId": subnet["VpcId"],
            "ownerId": session.account_id,
            "ipv6CidrBlockAssociationId": "",
            "region": session.region,
            **tagging.told(session, subnet.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Public addresses and tags."""
        if "mapPublicIpOnLaunch" in changed:
            self._map_public(session, resource_id, on=new["mapPublicIpOnLaunch"])
        if changed & {"tags", "tagsAll"}:
            tagging.update_ec2(session, resource_id, old, new)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:  # noqa: ARG002 - the protocol's
        """Deletes it once no interface is in it."""
        session.delete_held(
            f"subnet {resource_id}",
            lambda: session.ec2("delete_subnet", SubnetId=resource_id),
            lambda: holders.interfaces(session, subnet_id=resource_id),
        )


SUBNET = Table(
    pulumi_type="aws:ec2/subnet:Subnet",
    what="subnet",
    properties={
        "assignIpv6AddressOnCreation": OFF,
        "availabilityZone": Property(computed=True),
        "availabilityZoneId": Property(computed=True),
        "cidrBlock": Property(computed=True, wrong=block_of),
        "customerOwnedIpv4Pool": UNSIMULATED,
        "enableDns64": OFF,
        "enableLniAtDeviceIndex": UNSIMULATED,
        "enableResourceNameDnsARecordOnLaunch": OFF,
        "enableResourceNameDnsAaaaRecordOnLaunch": OFF,
        "ipv4IpamPoolId": UNSIMULATED,
        "ipv4NetmaskLength": UNSIMULATED,
        "ipv6CidrBlock": UNSIMULATED,
        "ipv6IpamPoolId": UNSIMULATED,
        "ipv6Native": OFF,
        "ipv6NetmaskLength": UNSIMULATED,
        "mapCustomerOwnedIpOnLaunch": UNSIMULATED,
        "mapPublicIpOnLaunch": Property(kind="flag", default=False),
        "outpostArn": UNSIMULATED,
        "privateDnsHostnameTypeOnLaunch": Property(computed=True, wrong=one_of("ip-name")),
        "region": REGION,
        "tags": TAGS,
        "vpcId": Property(required=True),
    },
    outputs=("arn", "ipv6CidrBlockAssociationId", "ownerId", "tagsAll"),
    rules=(exactly_one("cidrBlock"), at_most_one("availabilityZone", "availabilityZoneId")),
    handler=SubnetHandler(),
)


class GatewayHandler:
    """`aws:ec2/internetGateway:InternetGateway`."""

    def create(self, session: Session, inputs: Values) -> str:
        """Makes the gateway."""
        answer = session.ec2(
            "create_internet_gateway",
            TagSpecifications=tagging.specifications("internet-gateway", tagging.wanted(session, inputs)),
        )
        return str(answer["InternetGateway"]["InternetGatewayId"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Attaches it, if it is not attached yet."""
        if inputs.get("vpcId"):
            with tolerated("Resource.AlreadyAssociated"):
                session.ec2("attach_internet_gateway", InternetGatewayId=resource_id, VpcId=inputs["vpcId"])

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The gateway and where it is attached."""
        answer = session.ec2("describe_internet_gateways", InternetGatewayIds=[resource_id])
        gateway = one(answer["InternetGateways"])
        if gateway is None:
            return None
        attachment = one(gateway.get("Attachments", []))
        return {
            "arn": session.arn("ec2", f"internet-gateway/{resource_id}"),
            "vpcId": attachment["VpcId"] if attachment else "",
            "ownerId": session.account_id,
            "region": session.region,
            **tagging.told(session, gateway.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Moves it to another network; tags."""
        if "vpcId" in changed:
            self._detach(session, resource_id, old.get("vpcId", ""))
            self.settle(session, resource_id, new)
        if changed & {"tags", "tagsAll"}:
            tagging.update_ec2(session, resource_id, old, new)

    def _detach(self, session: Session, gateway_id: str, vpc_id: str) -> None:
        def detach() -> None:
            with tolerated("Gateway.NotAttached"):
                session.ec2("detach_internet_gateway", InternetGatewayId=gateway_id, VpcId=vpc_id)

        if vpc_id:
            session.delete_held(
                f"internet gateway {gateway_id}", detach, lambda: holders.public_interfaces(session, vpc_id)
            )

    def delete(self, session: Session, resource_id: str, state: Values) -> None:
        """Detaches and deletes it."""
        self._detach(session, resource_id, state.get("vpcId", ""))
        session.delete_held(
            f"internet gateway {resource_id}",
            lambda: session.ec2("delete_internet_gateway", InternetGatewayId=resource_id),
            lambda: [f"VPC {state.get('vpcId')}"],
        )


GATEWAY = Table(
    pulumi_type="aws:ec2/internetGateway:InternetGateway",
    what="internet gateway",
    properties={"region": REGION, "tags": TAGS, "vpcId": Property(computed=True)},
    outputs=("arn", "ownerId", "tagsAll"),
    handler=GatewayHandler(),
)
