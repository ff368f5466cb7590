"""Everything bootstrap wants to know of a node, read only, in one go.

Argument: {"image", "container", "token_path", "versions_path"}. Answer: what `bootstrap.facts` parses.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import typing
from pathlib import Path

from bootstrap.on_node.docker_socket import docker_get

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")
"""PCI classes VGA and 3D controller."""
TOOLKIT_PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
CAP_SYS_RESOURCE = 24
TCP_LISTEN = "0A"
HTTP_OK = 200
ROW_FIELDS = 3
"""Name, version and wanted state of a package."""


def text_of(path: str) -> str:
    """A file's text; empty when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def output_of(*argv: str, timeout_seconds: float = 20) -> "str | None":
    """A command's output; None when it is missing, fails or hangs."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_seconds, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def system() -> "dict[str, typing.Any]":
    """Machine and operating system."""
    release = dict(line.split("=", 1) for line in text_of("/etc/os-release").splitlines() if "=" in line)
    memory = next(line for line in text_of("/proc/meminfo").splitlines() if line.startswith("MemTotal:"))
    disk = shutil.disk_usage("/")
    return {
        "os": release.get("PRETTY_NAME", "").strip('"') or "unknown",
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu_count": os.cpu_count() or 1,
        "memory_bytes": int(memory.split()[1]) * 1024,
        "disk_free_bytes": disk.free,
        "disk_total_bytes": disk.total,
        "clock_unix_seconds": time.time(),
        "addresses": addresses(),
        "listening_ports": listening_ports(),
    }


def addresses() -> "list[str]":
    """IPv4 addresses of this machine."""
    found = output_of("ip", "-json", "-4", "address") or "[]"
    return [a["local"] for link in json.loads(found) for a in link.get("addr_info", []) if "local" in a]


def listening_ports() -> "list[int]":
    """TCP ports that something listens on."""
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in text_of(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == TCP_LISTEN:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return sorted(ports)


def limits() -> "dict[str, typing.Any]":
    """Whether containers may get a higher limit than the engine's own (it takes CAP_SYS_RESOURCE)."""
    effective = next(line for line in text_of("/proc/self/status").splitlines() if line.startswith("CapEff:"))
    return {"can_raise": bool(int(effective.split()[1], 16) >> CAP_SYS_RESOURCE & 1)}


def docker() -> "dict[str, typing.Any]":
    """The engine, if there is one."""
    status, info = docker_get("/info")
    running = status == HTTP_OK
    if not running:
        return {"installed": shutil.which("dockerd") is not None, "running": False}
    devices = info.get("DiscoveredDevices") or []
    return {
        "installed": True,
        "running": True,
        "version": info.get("ServerVersion"),
        "runtimes": sorted(info.get("Runtimes") or {}),
        "cdi_devices": [d.get("ID") for d in devices if isinstance(d, dict)],
        "root_free_bytes": shutil.disk_usage(info.get("DockerRootDir") or "/").free,
        "proxied": bool(info.get("HttpProxy") or info.get("HttpsProxy")),
    }


def image(reference: str, versions_path: str) -> "dict[str, typing.Any]":
    """The image by digest, and the versions found in it earlier."""
    status, data = docker_get(f"/images/{reference}/json")
    known = json.loads(text_of(versions_path) or "null")
    if status != HTTP_OK or reference not in (data.get("RepoDigests") or []):
        return {"present": False, "versions": None}
    return {"present": True, "versions": known}


def container(name: str) -> "dict[str, typing.Any] | None":
    """The Ray container."""
    status, data = docker_get(f"/containers/{name}/json")
    if status != HTTP_OK:
        return None
    return {
        "id": data["Id"],
        "status": data["State"]["Status"],
        "exit_code": data["State"]["ExitCode"],
        "started_at": data["State"]["StartedAt"],
        "restarts": data["RestartCount"],
        "spec": (data["Config"].get("Labels") or {}).get("rayrig.spec"),
    }


def gpus() -> "dict[str, typing.Any]":
    """GPUs as the bus shows them and as the driver shows them."""
    on_bus = [
        device
        for device in Path("/sys/bus/pci/devices").glob("*")
        if text_of(f"{device}/vendor").strip() == NVIDIA_VENDOR
        and text_of(f"{device}/class").strip().startswith(DISPLAY_CLASSES)
    ]
    query = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    rows = [line.split(", ") for line in (query or "").strip().splitlines()]
    return {
        "on_bus": len(on_bus),
        "driver_answers": query is not None,
        "names": [row[0] for row in rows],
        "driver_version": rows[0][1] if rows and len(rows[0]) > 1 else None,
        "device_files": sorted(str(p) for p in Path("/dev").glob("nvidia*") if not p.is_dir()),
        "infiniband": Path("/dev/infiniband").is_dir(),
    }


def toolkit() -> "dict[str, typing.Any]":
    """NVIDIA's container toolkit: versions of its packages, holds, Docker's settings."""
    shown = output_of(
        "dpkg-query", "--show", "--showformat", "${Package} ${Version} ${db:Status-Want}\n", *TOOLKIT_PACKAGES
    )
    if shown is None and shutil.which("dpkg-query"):
        # dpkg-query fails as a whole when one package is unknown, though it prints the others.
        shown = "".join(
            output_of("dpkg-query", "--show", "--showformat", "${Package} ${Version} ${db:Status-Want}\n", p) or ""
            for p in TOOLKIT_PACKAGES
        )
    # A package that is known but not installed has no version, so its line has fewer fields.
    rows = [
        line.split() for line in (shown or "").splitlines() if len(line.split()) == len(("name", "version", "want"))
    ]
    try:
        settings = json.loads(text_of("/etc/docker/daemon.json") or "{}")
    except ValueError:
        settings = {}
    return {
        "packages": {name: version for name, version, _ in rows},
        "held": sorted(name for name, _, want in rows if want == "hold"),
        "runtime_configured": "nvidia" in (settings.get("runtimes") or {}),
    }


def token(path: str) -> "dict[str, typing.Any] | None":
    """The token file's mode, owner and fingerprint; never its content."""
    try:
        state = Path(path).stat()
        content = Path(path).read_bytes()
    except OSError:
        return None
    return {
        "mode": oct(state.st_mode & 0o7777),
        "uid": state.st_uid,
        "fingerprint": hashlib.sha256(content.strip()).hexdigest()[:16],
    }


def main() -> None:
    """Answers with all facts."""
    asked = json.loads(sys.argv[1])
    print(
        json.dumps(
            {
                "system": system(),
                "limits": limits(),
                "docker": docker(),
                "image": image(asked["image"], asked["versions_path"]),
                "container": container(asked["container"]),
                "gpus": gpus(),
                "toolkit": toolkit(),
                "token": token(asked["token_path"]),
            }
        )
    )


if __name__ == "__main__":
    main()
