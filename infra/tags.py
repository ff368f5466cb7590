"""The tags of everything that a cluster makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi

from contract import names
from contract.inventory import Role


@dataclass(frozen=True, kw_only=True)
class Tags:
    """Where the tags' values come from.

    Attributes:
        cluster_id: Cluster's output; through it, every tagged resource depends on Cluster.
        owner: Cluster's output, so that a colleague's `up` changes nothing.
        deadline: Cluster's output, RFC 3339.
        stack: name of the stack.
        extra: the person's own.
    """

    cluster_id: pulumi.Input[str]
    owner: pulumi.Input[str]
    deadline: pulumi.Input[str]
    stack: str
    extra: Mapping[str, str] = field(default_factory=dict)

    def named(self, name: str) -> dict[str, pulumi.Input[str]]:
        """Tags of a resource; `name` is what the console shows."""
        return {
            **self.extra,
            "Name": f"rayrig-{self.stack}-{name}",
            names.TAG_CLUSTER: self.cluster_id,
            names.TAG_STACK: self.stack,
            names.TAG_OWNER: self.owner,
        }

    def node(self, name: str, role: Role) -> dict[str, pulumi.Input[str]]:
        """Tags of an instance and of its volumes: the deadline too, which the node reads from the metadata service."""
        return {
            **self.named(name),
            names.TAG_NODE: name,
            names.TAG_ROLE: role.value,
            names.TAG_DEADLINE: self.deadline,
        }
