"""Nodes as Docker containers: each with a folder of its own, an address on the lab network and its own Docker."""

import re
import shutil
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.types import EndpointConfig, Mount

from contract.errors import RayrigError
from rehearsal.images import node_run_options
from rehearsal.nodes.decisions import Machine
from rehearsal.nodes.docker_root import lay_out
from rehearsal.nodes.instances import Instance
from rehearsal.world.record import INSTANCE_LABEL, WORLD_LABEL

SCRIPTS = tuple(Path(__file__).parent / name for name in ("node-start.sh", "node-network.sh", "node-cloud-init.cfg"))
INSIDE = "/opt/rehearsal"
"""Where a node sees its scripts and rules."""
STOP_SECONDS = 8
"""How long a stopped node may take to shut down in order before it is cut off."""
CGROUPS = Path("/sys/fs/cgroup")
_EXIT_CODE = re.compile(r"Exited \((\d+)\)")


class NodeContainers:
    """The containers of one world's nodes; those without its label do not exist for it."""

    def __init__(
        self,
        client: docker.DockerClient,
        *,
        world_id: str,
        network: str,
        cidr: str,
        image: str,
        prepared_root: Path,
        folder: Path,
    ) -> None:
        self._client = client
        self._world_id = world_id
        self._network = network
        self._cidr = IPv4Network(cidr)
        self._image = image
        self._prepared_root = prepared_root
        self._folder = folder

    def machines(self) -> dict[str, Machine]:
        """Every node there is, by instance id."""
        found = self._client.api.containers(all=True, filters={"label": f"{WORLD_LABEL}={self._world_id}"})
        return {
            entry["Labels"][INSTANCE_LABEL]: Machine(
                container_id=entry["Id"],
                running=entry["State"] in {"running", "paused"},
                exit_code=_exit_code(entry["Status"]),
            )
            for entry in found
            if INSTANCE_LABEL in entry["Labels"]
        }

    def create(self, instance: Instance, rules: str) -> None:
        """Makes and boots a node; leaves nothing when that fails.

        Raises:
            DockerException: Docker refused.
            RayrigError: its address is outside the lab's network, or its Docker root could not be made.
        """
        if IPv4Address(instance.private_ip) not in self._cidr:
            raise RayrigError(
                f"the private address {instance.private_ip} is outside the lab's network {self._cidr}",
                next_step=f"give the VPC that block: pulumi config set vpcCidr {self._cidr}",
            )
        try:
            docker_root = self._folder / instance.instance_id / "docker"
            layers = lay_out(self._prepared_root, docker_root)
            self.write_rules(instance, rules)
            container = self._client.containers.create(self._image, **self._options(instance, docker_root, layers))
            container.start()
        except BaseException:
            self.remove(instance.instance_id)
            raise

    def _options(self, instance: Instance, docker_root: Path, layers: list[Mount]) -> dict[str, Any]:
        options: dict[str, Any] = node_run_options(docker_root=docker_root, metadata=None)
        del options["detach"]
        return options | {
            "command": ["/bin/sh", f"{INSIDE}/node-start.sh"],
            "mounts": [Mount(INSIDE, str(self._lab_folder(instance)), type="bind", read_only=True), *layers],
            "name": self.name(instance.instance_id),
            "hostname": instance.hostname,
            "labels": {WORLD_LABEL: self._world_id, INSTANCE_LABEL: instance.instance_id},
            "network": self._network,
            "networking_config": {
                self._network: EndpointConfig(
                    self._client.api.api_version,
                    ipv4_address=instance.private_ip,
                    mac_address=instance.mac,
                )
            },
        }

    def name(self, instance_id: str) -> str:
        """Name of a node's container."""
        return f"rayrig-{self._world_id}-{instance_id}"

    def start(self, container_id: str) -> None:
        """Boots a node that stands still."""
        self._client.containers.get(container_id).start()

    def stop(self, container_id: str) -> None:
        """Shuts a node down in order."""
        self._client.containers.get(container_id).stop(timeout=STOP_SECONDS)

    def reboot(self, container_id: str) -> None:
        """Shuts a node down in order and boots it again."""
        self._client.containers.get(container_id).restart(timeout=STOP_SECONDS)

    def remove(self, instance_id: str) -> None:
        """Ends a node at once and removes all of it; a second call finds nothing and is content."""
        try:
            self._client.containers.get(self.name(instance_id)).remove(force=True, v=True)
        except NotFound:
            pass
        except APIError as error:
            if error.status_code != 409:  # noqa: PLR2004 - HTTP conflict: its removal is in progress already
                raise
        remove_node_folder(self._folder / instance_id)

    def write_rules(self, instance: Instance, rules: str) -> None:
        """Puts a node's public address and rules where its next start, or `apply_rules`, finds them."""
        folder = self._lab_folder(instance)
        if not folder.is_dir():
            folder.mkdir(parents=True)
            for script in SCRIPTS:
                shutil.copy(script, folder)
        for name, text in (("public-address", instance.public_ip or ""), ("rules", rules)):
            draft = folder / f".{name}"
            draft.write_text(text, encoding="utf-8")
            draft.replace(folder / name)

    def apply_rules(self, container_id: str) -> None:
        """Brings the written rules into force in a running node.

        Raises:
            DockerException: the node refused them; the old ones hold.
        """
        result = self._client.containers.get(container_id).exec_run(["/bin/sh", f"{INSIDE}/node-network.sh"])
        if result.exit_code:
            said = result.output.decode(errors="replace") if isinstance(result.output, bytes) else ""
            raise DockerException(f"exit code {result.exit_code}: {said.strip()}")

    def _lab_folder(self, instance: Instance) -> Path:
        return self._folder / instance.instance_id / "lab"


def _exit_code(status: str) -> int | None:
    match = _EXIT_CODE.match(status)
    return int(match[1]) if match else None


def remove_node_folder(folder: Path) -> None:
    """Removes a node's folder, and the control groups that its own Docker left on this host.

    Raises:
        OSError: something in it is still in use.
    """
    for container in folder.glob("docker/containers/*"):
        for parent in (*CGROUPS.glob("*/docker"), CGROUPS / "docker"):
            _remove_groups(parent / container.name)
    if folder.exists():
        shutil.rmtree(folder)


def _remove_groups(group: Path) -> None:
    """Control groups go from the innermost outwards; one that the kernel still empties stays, and costs nothing."""
    inner = sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True)
    for folder in (*inner, group):
        with suppress(OSError):
            folder.rmdir()
