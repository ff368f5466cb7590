"""Removes what a world made, by its label, whether or not its daemon still lives."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from contract.errors import LeftoversError, RayrigError
from rehearsal.images import nodes_dir
from rehearsal.nodes.containers import remove_node_folder
from rehearsal.world.record import WORLD_LABEL

DOCKER_SECONDS = 60
"""Longest wait for one answer of the Docker engine."""
POOL_SIZE = 40
"""Connections to the engine: one per node in progress, and the reconciler's own."""
_CONFLICT = 409


@contextmanager
def docker_client() -> Iterator[docker.DockerClient]:
    """The host's Docker, with room for all nodes at once.

    Raises:
        RayrigError: it does not answer, or refused something inside the block.
    """
    try:
        client = docker.from_env(timeout=DOCKER_SECONDS, max_pool_size=POOL_SIZE)
    except DockerException as error:
        raise RayrigError("the Docker engine does not answer", why=str(error), next_step="docker info") from error
    try:
        yield client
    except DockerException as error:
        raise RayrigError("the Docker engine refused a part of the lab", why=str(error)) from error
    finally:
        client.close()


def remove_world(client: docker.DockerClient, world_id: str) -> int:
    """Removes every container, network, volume and node folder of a world; returns how many there were.

    Raises:
        LeftoversError: something would not go.
    """
    wanted: dict[str, str | list[str] | bool] = {"label": f"{WORLD_LABEL}={world_id}"}
    containers = client.containers.list(all=True, filters=wanted, sparse=True, ignore_removed=True)
    try:
        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(_remove_container, containers))
        networks = client.networks.list(filters=wanted)
        for network in networks:
            network.remove()
        volumes = client.volumes.list(filters=wanted)
        for volume in volumes:
            volume.remove(force=True)
    except DockerException as error:
        raise LeftoversError("the rehearsal left something in Docker", why=str(error)) from error
    return len(containers) + len(networks) + len(volumes) + remove_folders(world_id)


def remove_folders(world_id: str) -> int:
    """Removes the node folders of a world; returns how many there were.

    Raises:
        LeftoversError: a folder would not go.
    """
    folder = nodes_dir(world_id)
    nodes = list(folder.iterdir()) if folder.is_dir() else []
    try:
        for node in nodes:
            remove_node_folder(node)
        shutil.rmtree(folder, ignore_errors=not folder.is_dir())
    except OSError as error:
        raise LeftoversError("a node's folder cannot be removed", where=str(folder), why=str(error)) from error
    return len(nodes)


def _remove_container(container: Container) -> None:
    try:
        container.remove(force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
