"""The images at work: a node that boots like a machine, and the Ray image that reaches it by digest."""

import http.server
import json
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container
from docker.models.networks import Network

from rehearsal.images import (
    LabImages,
    ensure_lab_images,
    node_run_options,
    nodes_dir,
    publish_ray_image,
    start_registry,
)
from rehearsal.images.node import METADATA_VARIABLE
from rehearsal.nodes.docker_root import INSIDE, lay_out

WORLD = f"test-images-{secrets.token_hex(3)}"
USER_DATA = "#!/bin/sh\necho as-$(id -un) >/root/user-data-ran\n"
METADATA = {
    "ami-id": "ami-0lab",
    "hostname": "ip-10-0-0-9",
    "instance-id": "i-0lab",
    "instance-type": "m7i.large",
    "local-hostname": "ip-10-0-0-9.eu-west-1.compute.internal",
    "local-ipv4": "10.0.0.9",
    "public-keys/": "0=lab",
    "public-keys/0/openssh-key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxkNvZc1FpcXQeFbGqTcKQ6Ot6b2xXK0Zk5hGx0T0aa lab",
}


def until(happens: Callable[[], bool], *, seconds: float) -> float:
    """Polls until it happens; the seconds that took."""
    start = time.monotonic()
    while not happens():
        assert time.monotonic() - start < seconds, f"not within {seconds} s"
        time.sleep(0.1)
    return time.monotonic() - start


def says(node: Container, *argv: str) -> str:
    code, output = node.exec_run(list(argv))
    assert code == 0, output.decode()
    return output.decode().strip()


def succeeds(node: Container, *argv: str) -> bool:
    return bool(node.exec_run(list(argv)).exit_code == 0)


@pytest.fixture(scope="module")
def images() -> LabImages:
    return ensure_lab_images(say=print)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    folder = nodes_dir(WORLD)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[docker.DockerClient]:
    assert not folder.exists()
    client = docker.from_env(timeout=60)
    yield client
    client.close()


@pytest.fixture(scope="module")
def network(client: docker.DockerClient) -> Iterator[Network]:
    # As in a world, not from Docker's own pool: the node's Docker has taken a block of that for its bridge.
    pool = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet="10.231.77.0/24", gateway="10.231.77.1")])
    network = client.networks.create(WORLD, labels={"rayrig.rehearsal": WORLD}, driver="bridge", ipam=pool)
    network.reload()
    yield network
    for container in client.containers.list(all=True, filters={"label": f"rayrig.rehearsal={WORLD}"}):
        container.remove(force=True, v=True)
    network.remove()


@pytest.fixture(scope="module")
def gateway(network: Network) -> str:
    return str(network.attrs["IPAM"]["Config"][0]["Gateway"])


class MetadataHandler(http.server.BaseHTTPRequestHandler):
    """As much of the metadata service as cloud-init's Ec2 data source asks for."""

    def do_PUT(self) -> None:
        self.answer("token")

    def do_GET(self) -> None:
        _, _, path = self.path.strip("/").partition("/")
        names = {name.partition("/")[0] + ("/" if "/" in name else "") for name in METADATA}
        if path.rstrip("/") == "user-data":
            self.answer(USER_DATA)
        elif path.rstrip("/") == "meta-data":
            self.answer("\n".join(sorted(names)))
        elif (key := path.removeprefix("meta-data/")) in METADATA or (key := key.rstrip("/") + "/") in METADATA:
            self.answer(METADATA[key])
        else:
            self.send_error(404)

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Quiet."""


@pytest.fixture(scope="module")
def metadata(gateway: str) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer((gateway, 0), MetadataHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"{gateway}:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def node(images: LabImages, client: docker.DockerClient, network: Network, metadata: str, folder: Path) -> Container:
    root = folder / "n1/docker"
    layers = lay_out(images.prepared_docker_root, root)
    labels = {"rayrig.rehearsal": WORLD}
    options = node_run_options(docker_root=root, metadata=metadata)
    node = client.containers.run(
        images.node_image, name=f"{WORLD}-n1", network=network.name, labels=labels, mounts=layers, **options
    )
    until(lambda: succeeds(node, "test", "-e", "/var/lib/cloud/instance/boot-finished"), seconds=60)
    until(lambda: succeeds(node, "docker", "version"), seconds=60)
    return node


def test_second_call_builds_nothing_and_is_quick(images: LabImages) -> None:
    said: list[str] = []
    start = time.monotonic()
    assert ensure_lab_images(say=said.append) == images
    assert said == []
    assert time.monotonic() - start < 5


def test_boots_whole_and_runs_user_data_as_root(node: Container) -> None:
    until(lambda: says(node, "sh", "-c", "systemctl is-system-running || true") == "running", seconds=30)
    assert says(node, "cat", "/root/user-data-ran") == "as-root"
    assert says(node, "hostname") == "ip-10-0-0-9"


def test_default_user_is_as_on_ubuntus_images(node: Container) -> None:
    assert says(node, "sudo", "-u", "ubuntu", "sudo", "-n", "id", "-un") == "root"
    assert {"docker", "sudo"} <= set(says(node, "id", "-nG", "ubuntu").split())
    keys = says(node, "cat", "/home/ubuntu/.ssh/authorized_keys")
    assert METADATA["public-keys/0/openssh-key"] in keys, says(node, "grep", "-i", "key", "/var/log/cloud-init.log")


def test_host_key_is_the_nodes_own_and_only_ed25519_speaks(
    node: Container, images: LabImages, client: docker.DockerClient
) -> None:
    kept = client.containers.run(images.node_image, ["ls", "/etc/ssh"], remove=True).decode()
    assert "ssh_host_" not in kept
    node.reload()
    address = node.attrs["NetworkSettings"]["Networks"][WORLD]["IPAddress"]
    with socket.create_connection((address, 22), 5) as connection:
        assert connection.recv(64).startswith(b"SSH-2.0-OpenSSH")
    assert says(node, "sh", "-c", "ls /etc/ssh/ssh_host_*_key") == "/etc/ssh/ssh_host_ed25519_key"


def test_metadata_address_leads_to_the_stand_in(node: Container) -> None:
    url = "http://169.254.169.254/latest/meta-data/instance-id"
    assert says(node, "curl", "-sf", "-m", "5", url) == "i-0lab"
    assert METADATA_VARIABLE in says(node, "sh", "-c", "tr '\\0' '\\n' </proc/1/environ")


def test_no_package_job_runs_at_boot(node: Container) -> None:
    assert "apt" not in says(node, "systemctl", "list-timers", "--all", "--no-legend")


def test_image_with_this_checkouts_code_reaches_a_node_by_digest_in_seconds(
    node: Container, images: LabImages, client: docker.DockerClient, gateway: str
) -> None:
    port = start_registry(
        client,
        node_image=images.node_image,
        store=images.registry_store,
        addresses=["127.0.0.1", gateway],
        world_id=WORLD,
    )
    push, pull = f"127.0.0.1:{port}", f"{gateway}:{port}"
    reference = publish_ray_image(push_registry=push, pull_registry=pull, say=print)
    assert publish_ray_image(push_registry=push, pull_registry=pull, say=print) == reference
    assert reference.startswith(f"{pull}/rayrig@sha256:")
    start = time.monotonic()
    said = says(node, "docker", "pull", reference)
    assert time.monotonic() - start < 10
    assert said.count("Already exists") == 1
    run = ["docker", "run", "--rm", "--init", "--network=host", reference]
    assert says(node, *run, "id", "-u") == "1000"
    where = says(node, *run, "sh", "-c", "pwd; command -v ray; command -v python")
    assert where.split() == ["/opt/rayrig", "/opt/ray/bin/ray", "/opt/ray/bin/python"]
    result = json.loads(says(node, *run, "python", "-m", "images.verify", "--json").splitlines()[-1])
    assert result["ok"], result
    assert says(node, *run, "python", "-c", "import contract.names, jobs.train.ppo; print('imported')").endswith(
        "imported"
    )
    until(lambda: not says(node, "docker", "ps", "-q"), seconds=20)


def test_a_node_stands_on_the_prepared_layers_and_cannot_write_to_them(images: LabImages, node: Container) -> None:
    source = next(images.prepared_docker_root.glob("overlay2/*/diff/opt/ray/bin/ray"))
    inside = str(INSIDE / source.relative_to(images.prepared_docker_root))
    assert says(node, "stat", "-c", "%i", inside) == str(source.stat().st_ino)
    assert not succeeds(node, "sh", "-c", f"echo changed >> {inside}")


@pytest.mark.parametrize(("command", "code"), [("reboot", 129), ("poweroff", 130)])
def test_exit_code_tells_reboot_from_power_off(node: Container, command: str, code: int) -> None:
    node.exec_run(["systemctl", command], detach=True)
    assert node.wait(timeout=60)["StatusCode"] == code
    node.start()
    until(lambda: succeeds(node, "docker", "version"), seconds=60)
    assert says(node, "cat", "/root/user-data-ran") == "as-root"
