"""The part of a world that has nodes: network, registry, metadata service and reconciler."""

import logging
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import docker

from rehearsal.images import nodes_dir, publish_ray_image, start_registry
from rehearsal.metadata.server import MetadataServer
from rehearsal.metadata.source import Source
from rehearsal.nodes.changes import RequestWatch
from rehearsal.nodes.containers import NodeContainers
from rehearsal.nodes.firewall import Service, Surroundings, host_resolvers
from rehearsal.nodes.instances import Cloud
from rehearsal.nodes.reconciler import Reconciler
from rehearsal.world.aws import open_aws, report_power_off
from rehearsal.world.board import Board
from rehearsal.world.leftovers import docker_client, remove_world
from rehearsal.world.network import LabNetwork, make_network
from rehearsal.world.places import Places
from rehearsal.world.record import Lab, LabParts, Plan

log = logging.getLogger("rehearsal.world")


def open_lab(place: Places, plan: Plan, made_of: LabParts, board: Board, parts: ExitStack) -> tuple[str, Lab]:
    """Makes the lab and everything that stands in it; all of it ends, in order, when the parts are closed.

    Returns:
        The url of the world's AWS, and the lab's record.

    Raises:
        RayrigError: a part could not be made; what stood by then ends with the parts.
    """
    client = parts.enter_context(docker_client())
    parts.callback(_remove, client, plan.world_id)
    network = make_network(client, plan.world_id, tool_image=made_of.node_image)
    log.info("network %s: nodes %s, public %s", network.name, network.private, network.public)
    server = open_aws(place, plan, host=network.user_address, public_cidr=str(network.public), parts=parts)
    port = start_registry(
        client,
        node_image=made_of.node_image,
        store=made_of.registry_store,
        addresses=["127.0.0.1", network.user_address],
        world_id=plan.world_id,
    )
    push, pull = f"127.0.0.1:{port}", f"{network.user_address}:{port}"
    image = publish_ray_image(push_registry=push, pull_registry=pull, say=log.info)
    cloud = Cloud(endpoint_url=server.url, region=plan.region)
    source = Source(cloud, account_id=plan.account_id, notices=place.notices)
    metadata = MetadataServer(source, host=network.bridge_address)
    parts.callback(metadata.stop)
    reconciler = Reconciler(
        cloud=cloud,
        requests=RequestWatch(place.requests),
        containers=NodeContainers(
            client,
            world_id=plan.world_id,
            network=network.name,
            cidr=str(network.private),
            image=made_of.node_image,
            prepared_root=made_of.prepared_docker_root,
            folder=nodes_dir(plan.world_id),
        ),
        around=Surroundings(
            public_cidr=str(network.public),
            user_address=network.user_address,
            metadata=Service(address=network.bridge_address, port=metadata.port),
            boot_metadata=Service(address=network.bridge_address, port=metadata.boot_port),
            aws=(_service(server.url), _service(f"http://{pull}")),
            resolvers=_resolvers(),
        ),
        power_off=partial(report_power_off, server.url),
        changed=board.write,
    )
    board.watch(nodes=lambda: reconciler.states, problems=lambda: reconciler.problems)
    reconciler.start()
    parts.callback(reconciler.stop)
    return server.url, _record(network, push, pull, image)


def _resolvers() -> tuple[str, ...]:
    """Whom Docker's resolver asks on behalf of the nodes: the host's servers, or those behind systemd's stub."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        if path.is_file() and (found := host_resolvers(path.read_text(encoding="utf-8"))):
            return found
    return ()


def _record(network: LabNetwork, push: str, pull: str, image: str) -> Lab:
    return Lab(
        network=network.name,
        bridge=network.bridge,
        cidr=str(network.private),
        public_cidr=str(network.public),
        user_address=network.user_address,
        bridge_address=network.bridge_address,
        registry_push=push,
        registry_pull=pull,
        image=image,
    )


def _service(url: str) -> Service:
    parts = urlsplit(url)
    return Service(address=parts.hostname or "", port=parts.port or 80)


def _remove(client: docker.DockerClient, world_id: str) -> None:
    count = remove_world(client, world_id)
    log.info("removed what was left of the lab: %d containers, networks, volumes and folders", count)
