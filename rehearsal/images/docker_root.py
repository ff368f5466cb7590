"""The prepared Docker root: a node's /var/lib/docker that holds the Ray image's base."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.models.containers import Container

from contract.errors import RayrigError
from rehearsal.images.node import node_run_options
from rehearsal.images.oci import Repository
from rehearsal.images.registry import REPOSITORY, SERVE, STORE_INSIDE, WORLD_LABEL

_READY_SECONDS = 60.0
_PULL_SECONDS = 300.0
_SETTLE_SECONDS = 300.0
_STOP_SECONDS = 40
_PORT = 5000
_INSIDE = f"127.0.0.1:{_PORT}"
_POLL_SECONDS = 0.3
_NOTICE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class PreparingNode:
    """A node that fills a Docker root, with the lab's registry inside it.

    Attributes:
        container: the node.
        registry: IP:PORT of its registry as this host reaches it.
    """

    container: Container
    registry: str

    def pull(self, repository: str, digest: str, *, say: Callable[[str], None]) -> None:
        """Lets the node pull from its own registry.

        Raises:
            RayrigError: it could not.
        """
        reference = f"{_INSIDE}/{repository}@{digest}"
        pull = f"docker pull -q {reference} >/run/pull.log 2>&1; echo $? >/run/pull.code"
        self.container.exec_run(["sh", "-c", pull], detach=True)
        label = "prepared Docker root: the node pulls the Ray image's base"
        _until(self.container, ["test", "-s", "/run/pull.code"], label, _PULL_SECONDS, say)
        code, _, said = _output(self.container, ["cat", "/run/pull.code", "/run/pull.log"]).partition("\n")
        if code != "0":
            raise RayrigError("The node could not pull the Ray image's base", where=reference, why=said)


@contextmanager
def docker_root_in_preparation(
    client: docker.DockerClient,
    target: Path,
    *,
    node_image: str,
    store: Path,
    world_id: str,
    say: Callable[[str], None],
) -> Iterator[PreparingNode]:
    """A node with a fresh Docker root, which becomes the prepared one when the block ends without an error.

    What it holds must be pulled, not loaded: so the root knows the layers by the digests that later pulls name.

    Args:
        client: the host's Docker.
        target: a folder that does not exist; whole from the moment that it does.
        node_image: the node image's tag.
        store: folder of the lab's registry.
        world_id: label of the container, so that whoever cleans up finds it.
        say: takes one progress line.

    Raises:
        RayrigError: the node's Docker or registry did not start.
    """
    draft = target.with_name(f".{target.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    options = node_run_options(docker_root=draft, metadata=None)
    # Nobody answers for metadata here, and cloud-init would wait for it before Docker starts.
    options["command"] = ["/bin/sh", "-c", "touch /etc/cloud/cloud-init.disabled && exec /sbin/init"]
    options["volumes"][str(store)] = {"bind": STORE_INSIDE, "mode": "rw"}
    container = client.containers.run(
        node_image, name=f"rayrig-prepare-{world_id}", labels={WORLD_LABEL: world_id}, **options
    )
    try:
        _until(container, ["docker", "version"], "prepared Docker root: Docker starts", _READY_SECONDS, say)
        container.exec_run([SERVE, f"0.0.0.0:{_PORT}"], detach=True)
        container.reload()
        networks = container.attrs["NetworkSettings"]["Networks"].values()
        registry = f"{next(iter(networks))['IPAddress']}:{_PORT}"
        Repository(registry=registry, name=REPOSITORY).wait_ready(_READY_SECONDS)
        yield PreparingNode(container=container, registry=registry)
        stop = "systemctl stop docker.socket docker.service containerd.service; sync; touch /run/settled"
        container.exec_run(["sh", "-c", stop], detach=True)
        _until(
            container, ["test", "-e", "/run/settled"], "prepared Docker root: on its way to disk", _SETTLE_SECONDS, say
        )
        container.stop(timeout=_STOP_SECONDS)
    finally:
        container.remove(force=True, v=True)
    draft.replace(target)


def _output(container: Container, argv: list[str]) -> str:
    """What a command in a container says."""
    output = container.exec_run(argv).output
    return output.decode(errors="replace").strip() if isinstance(output, bytes) else ""


def _until(
    container: Container, argv: list[str], label: str, timeout_seconds: float, say: Callable[[str], None]
) -> None:
    """Repeats a command in a container until it succeeds."""
    start = notice = time.monotonic()
    while container.exec_run(argv).exit_code != 0:
        now = time.monotonic()
        if now - start > timeout_seconds:
            said = _output(container, ["journalctl", "-u", "docker", "-n", "6", "--no-pager", "-o", "cat"])
            raise RayrigError(
                f"{label}: not within {timeout_seconds:.0f} s",
                where=str(container.name),
                why=f"the node's Docker: {said}",
            )
        if now - notice >= _NOTICE_SECONDS:
            say(f"{label} ({now - start:.0f} s)")
            notice = now
        time.sleep(_POLL_SECONDS)
