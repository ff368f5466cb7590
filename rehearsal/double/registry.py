"""Type token to table."""

from collections.abc import Mapping

from rehearsal.double.kinds.groups import EGRESS_RULE, GROUP, INGRESS_RULE
from rehearsal.double.kinds.identity import PROFILE, ROLE, ROLE_POLICY
from rehearsal.double.kinds.instance_table import INSTANCE
from rehearsal.double.kinds.keys import KEY_PAIR
from rehearsal.double.kinds.network import GATEWAY, SUBNET, VPC
from rehearsal.double.kinds.routes import ASSOCIATION, ROUTE, ROUTE_TABLE
from rehearsal.double.table import Table, unknown_type

TABLES: Mapping[str, Table] = {
    table.pulumi_type: table
    for table in (
        VPC,
        SUBNET,
        GATEWAY,
        ROUTE_TABLE,
        ROUTE,
        ASSOCIATION,
        GROUP,
        INGRESS_RULE,
        EGRESS_RULE,
        KEY_PAIR,
        ROLE,
        ROLE_POLICY,
        PROFILE,
        INSTANCE,
    )
}


def table_of(token: str) -> Table:
    """The table of a type; raises ConfigError for a type that is not simulated."""
    table = TABLES.get(token)
    if table is None:
        raise unknown_type(token)
    return table
