"""Inputs and outputs of the `rayrig:index:*` resources: what infra sends and the provider plugin answers.

Every resource carries its `home`; the provider compares it with the credentials at hand before it reads or
changes anything (the safety interlock).
"""

from typing import Literal

from pydantic import AwareDatetime, Field

from contract.inventory import AccountId, Endpoint, HealthCheck, ImageReference, Node, Ports, Storage, WireModel


class Home(WireModel):
    """The account, region and endpoint that a cluster lives in."""

    account_id: AccountId
    region: str
    endpoint: Endpoint


class ClusterInputs(WireModel):
    """`rayrig:index:Cluster`: made first, deleted last; holds the id, the deadline and the receipt."""

    home: Home
    stack: str
    owner: str
    ttl_hours: float = Field(gt=0)


class ClusterOutputs(ClusterInputs):
    """What Cluster adds to its inputs."""

    cluster_id: str
    created_at: AwareDatetime
    deadline: AwareDatetime
    expired: bool = Field(
        default=False, description="seen by a read: the deadline has passed and no instance lives; the next up renews"
    )


class KeptBucketInputs(WireModel):
    """`rayrig:index:KeptBucket`: the results bucket, created or adopted, kept on destroy unless `keep` is false."""

    home: Home
    bucket: str = Field(description="bucket name; the default is names.results_bucket_name")
    keep: bool = True
    prefixes: tuple[str, ...] = Field(description="this stack's prefixes: what `keep: false` deletes")


class KeptBucketOutputs(KeptBucketInputs):
    """What KeptBucket adds to its inputs."""

    arn: str
    adopted: bool


class NodeInputs(WireModel):
    """`rayrig:index:Node`: one per instance; waits for boot, verifies the host key, makes Docker and image ready."""

    home: Home
    cluster_id: str
    node: Node = Field(description="host_key is None: this resource learns it")
    user: str
    role_id: str = Field(description="unique id of the instance role (AROA…), the first half of aws:userid")
    bucket: str = Field(description="where the host key is published")
    image: ImageReference


class NodeOutputs(NodeInputs):
    """What Node adds to its inputs."""

    host_key: str
    versions: dict[str, str] = Field(description="os, kernel, docker, driver; inside the image python, ray, torch, …")
    stage_seconds: dict[str, float]


class RayHeadInputs(WireModel):
    """`rayrig:index:RayHead`: the token and the supervised head container."""

    home: Home
    cluster_id: str
    head: Node
    user: str
    image: ImageReference
    ports: Ports
    health_check: HealthCheck
    storage: Storage


class RayHeadOutputs(RayHeadInputs):
    """What RayHead adds to its inputs."""

    address: str = Field(description="private-ip:gcs-port")
    stage_seconds: dict[str, float]


class RayFleetInputs(RayHeadInputs):
    """`rayrig:index:RayFleet`: joins workers, drains removed ones, proves readiness on every node."""

    workers: tuple[Node, ...]


class RayFleetOutputs(RayFleetInputs):
    """What RayFleet adds to its inputs."""

    state: Literal["ready"]
    proven_at: AwareDatetime
    versions: dict[str, str] = Field(description="equal on all nodes: python, ray, torch, …")
    stage_seconds: dict[str, float]
