"""Thin resource classes for the rayrig provider's types; what they take and give is in contract/resources.py."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, cast

import pulumi

from contract import resources
from contract.inventory import WireModel

T = TypeVar("T")


class RayrigResource(pulumi.CustomResource):
    """A resource of the rayrig provider.

    Attributes:
        token: its Pulumi type.
        inputs: the model whose fields, camelCase, are exactly its inputs.
        outputs: the model of its state after create, update and read.
    """

    token: ClassVar[str]
    inputs: ClassVar[type[WireModel]]
    outputs: ClassVar[type[WireModel]]

    def __init__(self, name: str, props: Mapping[str, pulumi.Input[Any]], opts: pulumi.ResourceOptions) -> None:
        """Registers the resource.

        Args:
            name: its logical name.
            props: its inputs by their names on the wire; parts of them may be outputs of other resources.
            opts: its options.

        Raises:
            TypeError: the names are not those of the input model (a mistake in this program, not the person's).
        """
        expected = {field.alias or key for key, field in self.inputs.model_fields.items()}
        if set(props) != expected:
            raise TypeError(f"{self.token}: inputs {sorted(set(props) ^ expected)} are missing or too many")
        answers = {field.alias or key: None for key, field in self.outputs.model_fields.items()}
        super().__init__(self.token, name, {**answers, **props}, opts)

    def output(self, name: str, kind: type[T]) -> pulumi.Output[T]:  # noqa: ARG002 - the type is for the reader
        """One of the state's properties, by its name on the wire."""
        return cast("pulumi.Output[T]", self.__dict__[name])


class Cluster(RayrigResource):
    """Made first, deleted last: identity, deadline and receipt."""

    token = "rayrig:index:Cluster"  # noqa: S105 - a Pulumi type token
    inputs = resources.ClusterInputs
    outputs = resources.ClusterOutputs

    @property
    def cluster_id(self) -> pulumi.Output[str]:
        """The id that every tag bears."""
        return self.output("clusterId", str)

    @property
    def owner(self) -> pulumi.Output[str]:
        """Who made the cluster."""
        return self.output("owner", str)

    @property
    def deadline(self) -> pulumi.Output[str]:
        """When the cluster ends itself, RFC 3339."""
        return self.output("deadline", str)


class KeptBucket(RayrigResource):
    """The results bucket, created or adopted, kept on destroy."""

    token = "rayrig:index:KeptBucket"  # noqa: S105 - a Pulumi type token
    inputs = resources.KeptBucketInputs
    outputs = resources.KeptBucketOutputs

    @property
    def bucket(self) -> pulumi.Output[str]:
        """Its name."""
        return self.output("bucket", str)

    @property
    def arn(self) -> pulumi.Output[str]:
        """Its ARN."""
        return self.output("arn", str)


class NodeSetup(RayrigResource):
    """One instance made into a node: booted, its host key verified, Docker and image ready."""

    token = "rayrig:index:Node"  # noqa: S105 - a Pulumi type token
    inputs = resources.NodeInputs
    outputs = resources.NodeOutputs

    @property
    def host_key(self) -> pulumi.Output[str]:
        """The SSH host key that the instance published itself."""
        return self.output("hostKey", str)


class RayHead(RayrigResource):
    """The token and Ray's head process."""

    token = "rayrig:index:RayHead"  # noqa: S105 - a Pulumi type token
    inputs = resources.RayHeadInputs
    outputs = resources.RayHeadOutputs


class RayFleet(RayrigResource):
    """All workers joined, and the cluster proven ready."""

    token = "rayrig:index:RayFleet"  # noqa: S105 - a Pulumi type token
    inputs = resources.RayFleetInputs
    outputs = resources.RayFleetOutputs

    @property
    def versions(self) -> pulumi.Output[dict[str, str]]:
        """What runs in the image, equal on all nodes."""
        return self.output("versions", dict[str, str])
