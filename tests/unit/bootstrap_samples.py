"""Nodes, facts and inputs that the bootstrap tests share."""

from bootstrap.container import RaySpec
from bootstrap.facts import NodeFacts, parse_facts
from contract.inventory import Endpoint, EndpointKind, HealthCheck, Node, Ports, Role
from contract.resources import Home

GIB = 2**30
IMAGE = "198.18.77.1:5000/rayrig@sha256:" + "ab" * 32
HOME = Home(
    account_id="000012345678",
    region="eu-west-1",
    endpoint=Endpoint(kind=EndpointKind.REHEARSAL, url="http://198.18.77.1:5001"),
)


def node(name="worker-1", *, gpus=0, cpus=2, memory=8 * GIB, ip="10.77.0.12", public=None, instance="i-1"):
    return Node(
        name=name,
        role=Role.HEAD if name == "head" else Role.WORKER,
        instance_id=instance,
        instance_type="m7i.large",
        cpu_count=cpus,
        memory_bytes=memory,
        gpu_count=gpus,
        private_ip=ip,
        public_ip=public,
    )


def facts(**changes) -> NodeFacts:
    """A container node as the facts program describes it; a change is given as `section__field=value`."""
    document = {
        "system": {
            "os": "Debian GNU/Linux 12 (bookworm)",
            "kernel": "6.1.0",
            "architecture": "x86_64",
            "cpu_count": 2,
            "memory_bytes": 24 * GIB,
            "disk_free_bytes": 50 * GIB,
            "disk_total_bytes": 100 * GIB,
            "clock_unix_seconds": 1.0,
            "addresses": ["127.0.0.1", "10.77.0.12", "10.77.0.11"],
            "listening_ports": [22],
        },
        "limits": {"can_raise": False},
        "docker": {
            "installed": True,
            "running": True,
            "version": "20.10.24",
            "runtimes": ["runc"],
            "cdi_devices": [],
            "root_free_bytes": 50 * GIB,
            "proxied": False,
        },
        "image": {"present": True, "versions": {"ray": "2.60.0"}},
        "container": None,
        "gpus": {
            "on_bus": 0,
            "driver_answers": False,
            "names": [],
            "driver_version": None,
            "device_files": [],
            "infiniband": False,
        },
        "toolkit": {"packages": {}, "held": [], "runtime_configured": False},
        "token": None,
    }
    for path, value in changes.items():
        section, _, field = path.partition("__")
        if field:
            document[section] = {**(document[section] or {}), field: value}
        else:
            document[section] = value
    return parse_facts(document, where="worker-1")


def gpu_facts(count=4, **changes) -> NodeFacts:
    return facts(
        **{
            "gpus__on_bus": count,
            "gpus__driver_answers": True,
            "gpus__names": ["NVIDIA A10G"] * count,
            "gpus__driver_version": "570.133.20",
            "gpus__device_files": ["/dev/nvidia0", "/dev/nvidiactl"],
            **changes,
        }
    )


def ray_spec(**changes) -> RaySpec:
    base = {
        "home": HOME,
        "image": IMAGE,
        "ports": Ports(),
        "health_check": HealthCheck(),
        "head_address": "10.77.0.11",
        "token_fingerprint": "0123456789abcdef",
    }
    return RaySpec(**{**base, **changes})
