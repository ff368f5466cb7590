"""The lab network: blocks of addresses that nobody on this host uses, a Docker bridge, and the person's side on it."""

import shutil
import socket
import struct
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import docker
from docker.errors import APIError
from docker.types import IPAMConfig, IPAMPool

from contract.errors import RayrigError
from rehearsal.world.record import WORLD_LABEL

PRIVATE_BLOCKS = tuple(f"10.{n}.0.0/16" for n in range(77, 127))
PUBLIC_BLOCKS = tuple(f"198.18.{n}.0/24" for n in range(77, 127))
"""198.18.0.0/15 is set aside for tests of network devices (RFC 2544): nobody's real address."""
_COMMAND_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class LabNetwork:
    """A Docker network of a world, with both of its blocks."""

    name: str
    bridge: str
    private: IPv4Network
    public: IPv4Network

    @property
    def bridge_address(self) -> str:
        """This host, seen from the private side."""
        return str(self.private[1])

    @property
    def user_address(self) -> str:
        """This host, seen from the public side: where the person sits."""
        return str(self.public[1])


def make_network(client: docker.DockerClient, world_id: str, *, tool_image: str) -> LabNetwork:
    """Makes the network with its gateway and the person's address.

    Args:
        client: the host's Docker.
        world_id: whose it is.
        tool_image: an image with iproute2, used where this host has none.

    Raises:
        RayrigError: no block is free, or the address could not be set.
    """
    taken = {*host_routes(Path("/proc/net/route").read_text(encoding="ascii")), *docker_blocks(client)}
    public = next(free_blocks(PUBLIC_BLOCKS, taken), None)
    for private in free_blocks(PRIVATE_BLOCKS, taken):
        if public is None:
            break
        network = LabNetwork(name=f"rayrig-{world_id}", bridge=f"rig-{world_id[-8:]}", private=private, public=public)
        if _create(client, network, world_id):
            _add_user_address(client, network, tool_image)
            return network
    raise RayrigError(
        "no free block of addresses for the lab network",
        why=f"all of {PRIVATE_BLOCKS[0]} … {PRIVATE_BLOCKS[-1]}, or of {PUBLIC_BLOCKS[0]} …, are in use on this host",
        next_step="remove Docker networks that nobody needs (`docker network ls`)",
    )


def free_blocks(candidates: Iterable[str], taken: Iterable[IPv4Network]) -> Iterator[IPv4Network]:
    """The candidates that overlap nothing taken, in their order; a default route takes nothing."""
    used = [network for network in taken if network.prefixlen]
    for text in candidates:
        block = IPv4Network(text)
        if not any(block.overlaps(network) for network in used):
            yield block


def host_routes(table: str) -> list[IPv4Network]:
    """Destinations in the kernel's routing table, given the text of /proc/net/route (little-endian hex)."""
    rows = (line.split() for line in table.splitlines()[1:])
    return [IPv4Network((_address(row[1]), _address(row[7]))) for row in rows if row]


def docker_blocks(client: docker.DockerClient) -> list[IPv4Network]:
    """Blocks of all Docker networks, those without a living bridge too."""
    pools = (pool for network in client.api.networks() for pool in (network["IPAM"].get("Config") or []))
    return [IPv4Network(pool["Subnet"]) for pool in pools if ":" not in pool.get("Subnet", ":")]


def _address(little_endian_hex: str) -> str:
    return socket.inet_ntoa(struct.pack("<L", int(little_endian_hex, 16)))


def _create(client: docker.DockerClient, network: LabNetwork, world_id: str) -> bool:
    # Addresses that Docker gives by itself come from the end of the block: moto counts from its beginning.
    last = list(network.private.subnets(new_prefix=24))[-1]
    pool = IPAMPool(subnet=str(network.private), gateway=network.bridge_address, iprange=str(last))
    try:
        client.networks.create(
            network.name,
            driver="bridge",
            ipam=IPAMConfig(pool_configs=[pool]),
            labels={WORLD_LABEL: world_id},
            options={"com.docker.network.bridge.name": network.bridge},
        )
    except APIError as error:
        # Somebody took the block since we looked.
        if "overlaps" in str(error.explanation):
            return False
        raise
    return True


def _add_user_address(client: docker.DockerClient, network: LabNetwork, tool_image: str) -> None:
    command = ["ip", "address", "replace", f"{network.user_address}/{network.public.prefixlen}", "dev", network.bridge]
    if shutil.which("ip") is None:
        client.containers.run(tool_image, command, network_mode="host", cap_add=["NET_ADMIN"], remove=True)
        return
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)
    if done.returncode:
        raise RayrigError(
            f"cannot give the lab's bridge the address {network.user_address}", where=network.bridge, why=done.stderr
        )
