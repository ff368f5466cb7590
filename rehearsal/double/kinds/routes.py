"""Routing: route table, route, association of a table with a subnet."""

import zlib
from typing import Any

from rehearsal.double import tagging
from rehearsal.double.kinds.network import one
from rehearsal.double.session import Session, tolerated
from rehearsal.double.table import REGION, TAGS, UNSIMULATED, Property, Table, exactly_one
from rehearsal.double.values import Values


class RouteTableHandler:
    """`aws:ec2/routeTable:RouteTable`."""

    def create(self, session: Session, inputs: Values) -> str:
        """Makes the table."""
        answer = session.ec2(
            "create_route_table",
            VpcId=inputs["vpcId"],
            TagSpecifications=tagging.specifications("route-table", tagging.wanted(session, inputs)),
        )
        return str(answer["RouteTable"]["RouteTableId"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Nothing more to do."""

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The table; its routes are resources of their own."""
        table = one(session.ec2("describe_route_tables", RouteTableIds=[resource_id])["RouteTables"])
        if table is None:
            return None
        return {
            "arn": session.arn("ec2", f"route-table/{resource_id}"),
            "vpcId": table["VpcId"],
            "ownerId": session.account_id,
            "region": session.region,
            **tagging.told(session, table.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Tags."""
        if changed & {"tags", "tagsAll"}:
            tagging.update_ec2(session, resource_id, old, new)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:  # noqa: ARG002 - the protocol's
        """Deletes it once no subnet uses it."""

        def users() -> list[str]:
            tables = session.ec2("describe_route_tables", RouteTableIds=[resource_id])["RouteTables"]
            used = [each.get("SubnetId") for table in tables for each in table["Associations"]]
            return [f"subnet {subnet}" for subnet in used if subnet]

        session.delete_held(
            f"route table {resource_id}",
            lambda: session.ec2("delete_route_table", RouteTableId=resource_id),
            users,
        )


ROUTE_TABLE = Table(
    pulumi_type="aws:ec2/routeTable:RouteTable",
    what="route table",
    properties={
        "propagatingVgws": UNSIMULATED,
        "region": REGION,
        "routes": UNSIMULATED,
        "tags": TAGS,
        "vpcId": Property(required=True),
    },
    outputs=("arn", "ownerId", "tagsAll"),
    handler=RouteTableHandler(),
)


class RouteHandler:
    """`aws:ec2/route:Route`; its id is `r-TABLE` and a checksum of the destination, as the provider makes it."""

    DESTINATIONS = {  # noqa: RUF012 - a table
        "destinationCidrBlock": "DestinationCidrBlock",
        "destinationIpv6CidrBlock": "DestinationIpv6CidrBlock",
    }

    def _key(self, state: Values) -> dict[str, str]:
        return {name: state[key] for key, name in self.DESTINATIONS.items() if state.get(key)}

    def create(self, session: Session, inputs: Values) -> str:
        """Makes the route."""
        key = self._key(inputs)
        session.ec2("create_route", RouteTableId=inputs["routeTableId"], GatewayId=inputs["gatewayId"], **key)
        return f"r-{inputs['routeTableId']}{zlib.crc32(next(iter(key.values())).encode())}"

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Nothing more to do."""

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The route in its table; `pulumi import` takes TABLE_DESTINATION."""
        if "routeTableId" not in state:
            table_id, _, destination = resource_id.partition("_")
            key = "destinationIpv6CidrBlock" if ":" in destination else "destinationCidrBlock"
            state = {"routeTableId": table_id, key: destination}
        table = one(session.ec2("describe_route_tables", RouteTableIds=[state["routeTableId"]])["RouteTables"])
        wanted = self._key(state)
        route = next((each for each in table["Routes"] if wanted.items() <= each.items()), None) if table else None
        if route is None:
            return None
        return {
            "routeTableId": state["routeTableId"],
            "destinationCidrBlock": route.get("DestinationCidrBlock", ""),
            "destinationIpv6CidrBlock": route.get("DestinationIpv6CidrBlock", ""),
            "gatewayId": route.get("GatewayId", ""),
            "instanceId": "",
            "instanceOwnerId": "",
            "origin": route.get("Origin", "CreateRoute"),
            "state": route.get("State", "active"),
            "region": session.region,
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:  # noqa: ARG002
        """Another gateway."""
        if "gatewayId" in changed:
            session.ec2("replace_route", RouteTableId=new["routeTableId"], GatewayId=new["gatewayId"], **self._key(new))

    def delete(self, session: Session, resource_id: str, state: Values) -> None:  # noqa: ARG002 - the protocol's
        """Deletes it."""
        session.delete_held(
            f"route of {state['routeTableId']}",
            lambda: session.ec2("delete_route", RouteTableId=state["routeTableId"], **self._key(state)),
            list,
        )


ROUTE = Table(
    pulumi_type="aws:ec2/route:Route",
    what="route",
    properties={
        "carrierGatewayId": UNSIMULATED,
        "coreNetworkArn": UNSIMULATED,
        "destinationCidrBlock": Property(),
        "destinationIpv6CidrBlock": Property(),
        "destinationPrefixListId": UNSIMULATED,
        "egressOnlyGatewayId": UNSIMULATED,
        "gatewayId": Property(),
        "localGatewayId": UNSIMULATED,
        "natGatewayId": UNSIMULATED,
        "networkInterfaceId": UNSIMULATED,
        "odbNetworkArn": UNSIMULATED,
        "region": REGION,
        "routeTableId": Property(required=True),
        "transitGatewayId": UNSIMULATED,
        "vpcEndpointId": UNSIMULATED,
        "vpcPeeringConnectionId": UNSIMULATED,
    },
    outputs=("instanceId", "instanceOwnerId", "origin", "state"),
    rules=(exactly_one("destinationCidrBlock", "destinationIpv6CidrBlock"), exactly_one("gatewayId")),
    handler=RouteHandler(),
)


class AssociationHandler:
    """`aws:ec2/routeTableAssociation:RouteTableAssociation`."""

    def create(self, session: Session, inputs: Values) -> str:
        """Associates the table with the subnet."""
        answer = session.ec2("associate_route_table", RouteTableId=inputs["routeTableId"], SubnetId=inputs["subnetId"])
        return str(answer["AssociationId"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Nothing more to do."""

    def _find(self, session: Session, resource_id: str, state: Values) -> dict[str, Any] | None:
        """By id, else by subnet: AWS gives a new id when an association moves to another table."""
        for name, value in (
            ("association.route-table-association-id", resource_id),
            ("association.subnet-id", state.get("subnetId")),
        ):
            if value:
                tables = session.ec2("describe_route_tables", Filters=[{"Name": name, "Values": [value]}])
                for table in tables["RouteTables"]:
                    for each in table["Associations"]:
                        if value in {each["RouteTableAssociationId"], each.get("SubnetId")}:
                            found: dict[str, Any] = each
                            return found
        return None

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The association."""
        found = self._find(session, resource_id, state)
        if found is None:
            return None
        return {
            "routeTableId": found["RouteTableId"],
            "subnetId": found.get("SubnetId", ""),
            "region": session.region,
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Moves it to another table."""
        found = self._find(session, resource_id, old)
        if "routeTableId" in changed and found is not None:
            session.ec2(
                "replace_route_table_association",
                AssociationId=found["RouteTableAssociationId"],
                RouteTableId=new["routeTableId"],
            )

    def delete(self, session: Session, resource_id: str, state: Values) -> None:
        """Ends it."""
        found = self._find(session, resource_id, state)
        if found is not None:
            with tolerated(not_found=True):
                session.ec2("disassociate_route_table", AssociationId=found["RouteTableAssociationId"])


ASSOCIATION = Table(
    pulumi_type="aws:ec2/routeTableAssociation:RouteTableAssociation",
    what="route table association",
    properties={
        "gatewayId": UNSIMULATED,
        "region": REGION,
        "routeTableId": Property(required=True),
        "subnetId": Property(),
    },
    outputs=(),
    rules=(exactly_one("subnetId"),),
    handler=AssociationHandler(),
)
