"""The node image: a Debian bookworm machine image that boots systemd and cloud-init in a container.

Bookworm, because later systemd refuses a cgroup v1 host. Where its metadata service is, a node learns from the
environment variable RAYRIG_LAB_METADATA=IP:PORT given to its container (node_run_options sets it): a unit that runs
before cloud-init sends 169.254.169.254:80 there by an OUTPUT rule in iptables' nat table, so that the stand-in sees the
node's own address as the caller's.
"""

from pathlib import Path
from typing import Any

from rehearsal.images.rootfs import Builder, make_root, run_inside

RECIPE = Path(__file__).parent / "recipes" / "node"
SUITE = "bookworm"
METADATA_VARIABLE = "RAYRIG_LAB_METADATA"

_CAPABILITIES = (
    "DAC_READ_SEARCH", "IPC_LOCK", "IPC_OWNER", "MKNOD", "NET_ADMIN", "NET_RAW", "SYSLOG", "SYS_ADMIN", "SYS_BOOT",
    "SYS_CHROOT", "SYS_NICE", "SYS_PTRACE",
)  # fmt: skip


def make_node_root(builder: Builder, root: Path) -> None:
    """Makes the node's file system in an empty folder.

    Raises:
        RayrigError: a step failed.
    """
    make_root(builder, root, suite=SUITE, label="node image")
    packages = " ".join((RECIPE / "packages.txt").read_text().split())
    run_inside(
        builder,
        root,
        (RECIPE / "install.sh").read_text(),
        label="node image: packages",
        environment={"PACKAGES": packages},
    )
    lay_over(RECIPE / "files", root)
    run_inside(builder, root, (RECIPE / "finish.sh").read_text(), label="node image: first-boot state")


def lay_over(files: Path, root: Path) -> None:
    """Copies a tree of files onto a root, owned by root, executable where they are."""
    for source in sorted(files.rglob("*")):
        if not source.is_file():
            continue
        target = root / source.relative_to(files)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def node_run_options(*, docker_root: Path, metadata: str | None) -> dict[str, Any]:
    """How a node's container is run: the docker SDK's keywords, all but image, name, network, address and labels.

    The same for hosts with cgroup v1 and v2: the node sees the host's cgroup tree read-write and makes its own below
    its container's; its Docker uses the cgroupfs driver in both. No `privileged` and no memlock limit, so that hosts
    that lack CAP_SYS_RESOURCE can run nodes too. SYS_BOOT lets the node end itself so that its exit code tells what it
    did: 129 reboot, 130 power-off (the kernel confines it to the node's own process space).

    Args:
        docker_root: host folder that becomes the node's /var/lib/docker.
        metadata: IP:PORT of the metadata stand-in as seen from the node; None for a node without one.
    """
    environment = {"container": "docker"}
    if metadata is not None:
        environment[METADATA_VARIABLE] = metadata
    return {
        "command": ["/sbin/init"],
        "cap_add": list(_CAPABILITIES),
        "security_opt": ["seccomp=unconfined", "apparmor=unconfined"],
        "cgroupns": "host",
        "volumes": {
            "/sys/fs/cgroup": {"bind": "/sys/fs/cgroup", "mode": "rw"},
            str(docker_root): {"bind": "/var/lib/docker", "mode": "rw"},
        },
        "tmpfs": {"/run": "exec,mode=755", "/run/lock": ""},
        "stop_signal": "SIGRTMIN+3",
        "environment": environment,
        "sysctls": {"net.ipv4.ip_forward": "1"},
        "detach": True,
    }
