"""The lab's registry: Debian's docker-registry in a container of the node image, over a store in the user's cache."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import docker

from contract.errors import RayrigError
from rehearsal.images.oci import Repository

WORLD_LABEL = "rayrig.rehearsal"
REPOSITORY = "rayrig"
STORE_INSIDE = "/var/lib/rayrig-registry"
"""Where a container of the node image expects the registry's store."""
SERVE = "/usr/local/sbin/rayrig-lab-registry"
"""In the node image: serves the store on each IP:PORT that it is given."""
_READY_SECONDS = 15.0
_TRIES = 5


def registry_container_spec(*, node_image: str, store: Path, listen: Sequence[str], world_id: str) -> dict[str, Any]:
    """How the registry's container is run: the docker SDK's keywords, the image among them.

    It uses the host's network, because a published port can't be reached across Docker's own networks: nodes reach
    it at the lab bridge's user-side address.

    Args:
        node_image: LabImages.node_image.
        store: LabImages.registry_store; kept from world to world, so the Ray image's base is pushed only once.
        listen: each IP:PORT that it serves.
        world_id: its label, by which the world's end finds it.
    """
    return {
        "image": node_image,
        "command": [SERVE, *listen],
        "name": f"rayrig-registry-{world_id}",
        "labels": {WORLD_LABEL: world_id},
        "network_mode": "host",
        "volumes": {str(store): {"bind": STORE_INSIDE, "mode": "rw"}},
        "detach": True,
    }


def start_registry(
    client: docker.DockerClient, *, node_image: str, store: Path, addresses: Sequence[str], world_id: str
) -> int:
    """Starts the registry on a free port of each address and waits until it answers there.

    Returns:
        The port.

    Raises:
        RayrigError: it did not come up.
    """
    store.mkdir(parents=True, exist_ok=True)
    trouble: RayrigError | None = None
    for _ in range(_TRIES):
        port = _free_port(addresses)
        listen = [f"{address}:{port}" for address in addresses]
        container = client.containers.run(
            **registry_container_spec(node_image=node_image, store=store, listen=listen, world_id=world_id)
        )
        try:
            for place in listen:
                Repository(registry=place, name=REPOSITORY).wait_ready(_READY_SECONDS)
        except RayrigError as error:
            # Somebody may have taken the port in the meantime.
            said = container.logs(tail=3).decode(errors="replace").strip()
            trouble = RayrigError("The lab's registry did not start", where=", ".join(listen), why=said or str(error))
            container.remove(force=True)
        else:
            return port
    if trouble is None:
        raise AssertionError("at least one try was made")
    raise trouble


def _free_port(addresses: Sequence[str]) -> int:
    """A TCP port that is free on every address right now."""
    for _ in range(_TRIES):
        with socket.socket() as first:
            first.bind((addresses[0], 0))
            port = int(first.getsockname()[1])
            if all(_is_free(address, port) for address in addresses[1:]):
                return port
    raise RayrigError("No TCP port is free on every address of the registry", where=", ".join(addresses))


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True
