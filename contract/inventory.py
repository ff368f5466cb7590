"""The inventory: the only thing that jobs and bootstrap know of a cluster.

It is the single stack output `cluster` (`pulumi stack output cluster --json`) or a file given with
`--inventory FILE`. On the wire keys are camelCase, as Pulumi writes properties.
"""

import json
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from contract.errors import ConfigError

MIN_WORKER_PORTS = 1000
"""Fewer end in "no available ports" (ray-project/ray#28071)."""
FIRST_EPHEMERAL_PORT = 32768
"""Linux's default `net.ipv4.ip_local_port_range` starts here."""

AccountId = Annotated[str, StringConstraints(pattern=r"^\d{12}$")]
ImageReference = Annotated[str, StringConstraints(pattern=r"^[^\s@]+@sha256:[0-9a-f]{64}$")]


class WireModel(BaseModel):
    """Base of what crosses a room or process boundary: frozen, camelCase on the wire, unknown keys refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )

    def to_wire(self) -> dict[str, object]:
        """A JSON-ready dict with camelCase keys."""
        return self.model_dump(mode="json", by_alias=True)


class Role(StrEnum):
    """What a node does."""

    HEAD = "head"
    WORKER = "worker"


class Market(StrEnum):
    """How an instance is bought."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class EndpointKind(StrEnum):
    """Which AWS a cluster lives in."""

    AWS = "aws"
    REHEARSAL = "rehearsal"


class Endpoint(WireModel):
    """The AWS that the cluster was made in; `url` is None for AWS itself."""

    kind: EndpointKind
    url: str | None = None

    @model_validator(mode="after")
    def _url_fits_kind(self) -> Self:
        if (self.url is None) != (self.kind is EndpointKind.AWS):
            raise ValueError("an endpoint url is given exactly when the endpoint is not AWS itself")
        return self


class Node(WireModel):
    """One machine of the cluster."""

    name: str
    role: Role
    market: Market = Market.ON_DEMAND
    instance_id: str
    instance_type: str
    cpu_count: int = Field(gt=0, description="vCPUs of the instance type")
    memory_bytes: int = Field(gt=0, description="memory of the instance type")
    gpu_count: int = Field(ge=0, description="GPUs of the instance type; a node that shows fewer is a failure")
    gpu_model: str | None = None
    private_ip: str
    public_ip: str | None = None
    host_key: str | None = Field(
        default=None, description="'ssh-ed25519 AAAA…', published by the instance itself; None until known"
    )

    @property
    def address(self) -> str:
        """Where a person's machine reaches the node over SSH."""
        return self.public_ip or self.private_ip


class Access(WireModel):
    """How a person's machine gets to the nodes."""

    method: Literal["ssh", "ssm"] = "ssh"
    user: str = "ubuntu"
    cidr: str | None = Field(default=None, description="from where SSH is open; None with ssm")


class Image(WireModel):
    """The container image that every node runs, by digest."""

    reference: ImageReference
    versions: dict[str, str] = Field(default_factory=dict, description="found inside: python, ray, torch, cuda, …")


class Ports(WireModel):
    """Every port Ray uses, pinned. Source of the list: facts on Ray 2.60, `ray start --help`."""

    gcs: int = 6379
    node_manager: int = 6380
    object_manager: int = 6381
    dashboard: int = 8265
    dashboard_agent_grpc: int = 6382
    dashboard_agent_listen: int = 52365
    runtime_env_agent: int = 6383
    metrics_export: int = 6384
    ray_client: int = 10001
    autoscaler_metrics: int = 44217
    dashboard_metrics: int = 44227
    min_worker: int = 10002
    max_worker: int = 19999

    @model_validator(mode="after")
    def _distinct_and_wide(self) -> Self:
        singles = {k: v for k, v in self.model_dump(by_alias=False).items() if not k.endswith("_worker")}
        if len(set(singles.values())) != len(singles):
            raise ValueError("two of Ray's ports are the same")
        if self.max_worker - self.min_worker + 1 < MIN_WORKER_PORTS:
            raise ValueError(f"the worker port range must hold at least {MIN_WORKER_PORTS} ports")
        if inside := [k for k, v in singles.items() if self.min_worker <= v <= self.max_worker]:
            raise ValueError(f"inside the worker port range: {', '.join(inside)}")
        if self.max_worker >= FIRST_EPHEMERAL_PORT:
            raise ValueError(f"the worker port range must end below the ephemeral range ({FIRST_EPHEMERAL_PORT})")
        return self


class Storage(WireModel):
    """Where results go. `results_uri` ends without a slash."""

    bucket: str
    results_uri: str = Field(description="s3://bucket/runs/STACK: run directories, outlive the cluster")
    cluster_uri: str = Field(description="s3://bucket/clusters/ID: host keys, readiness, receipt")


class HealthCheck(WireModel):
    """Ray's own node health check; the defaults are Ray's, rehearsal shortens them."""

    initial_delay_ms: int = Field(default=5000, ge=0)
    period_ms: int = Field(default=3000, gt=0)
    timeout_ms: int = Field(default=10000, gt=0)
    failure_threshold: int = Field(default=5, gt=0)

    @property
    def detection_seconds(self) -> float:
        """How long Ray needs to notice a deaf node: 30 s by its defaults (seen: 29-30 s), 8 s as rehearsal sets it."""
        return (self.initial_delay_ms + self.failure_threshold * self.period_ms + self.timeout_ms) / 1000

    @property
    def proof_seconds(self) -> float:
        """How long a node must stay alive after joining to count as proven: half as long again as detection."""
        return 1.5 * self.detection_seconds


class Inventory(WireModel):
    """A whole cluster, as jobs and bootstrap see it."""

    schema_version: Literal[1] = 1
    cluster_id: str
    stack: str
    account_id: AccountId
    region: str
    availability_zone: str
    endpoint: Endpoint
    nodes: tuple[Node, ...]
    access: Access
    image: Image
    ports: Ports = Field(default_factory=Ports)
    health_check: HealthCheck = Field(default_factory=HealthCheck)
    storage: Storage
    deadline: AwareDatetime = Field(description="when the cluster ends itself (TTL)")
    price_usd_per_hour: float | None = Field(default=None, description="None when a type is unpriced, never a guess")

    @model_validator(mode="after")
    def _one_head_and_unique_names(self) -> Self:
        if sum(n.role is Role.HEAD for n in self.nodes) != 1:
            raise ValueError("a cluster has exactly one head")
        for field in ("name", "instance_id", "private_ip"):
            values = [getattr(n, field) for n in self.nodes]
            if len(set(values)) != len(values):
                raise ValueError(f"two nodes share one {field}")
        return self

    @property
    def head(self) -> Node:
        """The head node."""
        return next(n for n in self.nodes if n.role is Role.HEAD)

    @property
    def workers(self) -> tuple[Node, ...]:
        """All nodes but the head."""
        return tuple(n for n in self.nodes if n.role is not Role.HEAD)

    def remaining_seconds(self, now: datetime) -> float:
        """Seconds until the deadline; negative once it has passed."""
        return (self.deadline - now).total_seconds()


def parse_inventory(document: str, *, source: str) -> Inventory:
    """Reads an inventory from JSON.

    Args:
        document: the JSON text.
        source: where it came from, for the error.

    Raises:
        ConfigError: not JSON, another schema version, or a field missing or wrong.
    """
    try:
        data = json.loads(document)
    except json.JSONDecodeError as error:
        raise ConfigError(
            "the inventory is not JSON", where=source, why=str(error), next_step="pulumi stack output cluster --json"
        ) from error
    version = data.get("schemaVersion") if isinstance(data, dict) else None
    if version != 1:
        raise ConfigError(
            f"the inventory has schema version {version!r}, this rayrig reads version 1",
            where=source,
            next_step="use the rayrig that made the cluster, or run `pulumi up` with this one",
        )
    try:
        return Inventory.model_validate(data)
    except ValidationError as error:
        why = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'inventory'}: {e['msg']}" for e in error.errors())
        raise ConfigError("the inventory is not valid", where=source, why=why) from error


def read_inventory(path: Path) -> Inventory:
    """Reads an inventory file; raises ConfigError when it is missing or wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError("cannot read the inventory", where=str(path), why=error.strerror) from error
    return parse_inventory(text, source=str(path))
