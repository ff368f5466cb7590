"""What a node is and has, read in one round trip and typed."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bootstrap.on_node import run_program
from contract.errors import StepError
from contract.names import NODE_STATE_DIR, RAY_CONTAINER, TOKEN_PATH
from remote import Connection

FACTS_SECONDS = 40.0
"""A wedged NVIDIA driver lets nvidia-smi hang; the node's program gives it 20 s."""


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SystemFacts(_Fact):
    """Machine and operating system; sizes in bytes."""

    os: str
    kernel: str
    architecture: str
    cpu_count: int
    memory_bytes: int
    disk_free_bytes: int
    disk_total_bytes: int
    clock_unix_seconds: float
    addresses: tuple[str, ...]
    listening_ports: tuple[int, ...]


class LimitFacts(_Fact):
    """What limits containers can be given."""

    can_raise: bool


class DockerFacts(_Fact):
    """The Docker engine."""

    installed: bool
    running: bool
    version: str | None = None
    runtimes: tuple[str, ...] = ()
    cdi_devices: tuple[str | None, ...] = ()
    root_free_bytes: int | None = None
    proxied: bool = False


class ImageFacts(_Fact):
    """The wanted image; `versions` is what was found in it by an earlier run, None when never asked."""

    present: bool
    versions: dict[str, str] | None


class ContainerFacts(_Fact):
    """The Ray container as Docker describes it; `spec` is our label, None on a stranger's."""

    id: str
    status: str
    exit_code: int
    started_at: str
    restarts: int
    spec: str | None

    @property
    def running(self) -> bool:
        """Whether its main process runs."""
        return self.status == "running"


class GpuFacts(_Fact):
    """NVIDIA GPUs: on the PCI bus, and as the driver names them."""

    on_bus: int
    driver_answers: bool
    names: tuple[str, ...]
    driver_version: str | None
    device_files: tuple[str, ...]
    infiniband: bool

    @property
    def any(self) -> bool:
        """Whether the machine has GPUs, with or without a working driver."""
        return self.on_bus > 0 or bool(self.names)


class ToolkitFacts(_Fact):
    """NVIDIA's container toolkit."""

    packages: dict[str, str]
    held: tuple[str, ...]
    runtime_configured: bool


class TokenFacts(_Fact):
    """The token file, without its content."""

    mode: str
    uid: int
    fingerprint: str


class NodeFacts(_Fact):
    """All facts of one node at one moment."""

    system: SystemFacts
    limits: LimitFacts
    docker: DockerFacts
    image: ImageFacts
    container: ContainerFacts | None
    gpus: GpuFacts
    toolkit: ToolkitFacts
    token: TokenFacts | None


@dataclass(frozen=True, kw_only=True)
class ImagePaths:
    """Where the node keeps what belongs to one image digest."""

    versions: str
    pull_state: str
    pull_unit: str


def image_paths(image: str) -> ImagePaths:
    """Paths and unit name of an image, by its digest."""
    digest = image.rpartition("sha256:")[2][:16]
    return ImagePaths(
        versions=f"{NODE_STATE_DIR}/image-{digest}.json",
        pull_state=f"/run/rayrig/pull-{digest}.json",
        pull_unit=f"rayrig-pull-{digest}",
    )


def parse_facts(document: dict[str, Any], *, where: str) -> NodeFacts:
    """Types what the node answered; raises StepError when it does not fit."""
    try:
        return NodeFacts.model_validate(document)
    except ValidationError as error:
        raise StepError("step facts: the node's answer does not fit", where=where, why=str(error)) from error


def read_facts(connection: Connection, *, image: str) -> NodeFacts:
    """Reads all facts in one round trip.

    Args:
        connection: the node.
        image: the image that the node is to run, by digest.

    Raises:
        StepError: the answer does not fit; the remote errors of `Connection.run`.
    """
    answer = run_program(
        connection,
        "facts",
        timeout_seconds=FACTS_SECONDS,
        image=image,
        container=RAY_CONTAINER,
        token_path=TOKEN_PATH,
        versions_path=image_paths(image).versions,
    )
    return parse_facts(answer, where=connection.target.where)
