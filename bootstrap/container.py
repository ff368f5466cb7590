"""The Ray container of a node, as one value: its argv for `docker run` and the hash by which it is recognised."""

import hashlib
import json
from dataclasses import dataclass

from bootstrap.facts import NodeFacts
from bootstrap.sizing import MemorySizes, memory_sizes
from contract.inventory import HealthCheck, Node, Ports, Role
from contract.names import CONTAINER_TOKEN_PATH, CONTAINER_UID, RAY_CONTAINER, TOKEN_PATH, WORKER_RESOURCE
from contract.resources import Home

SPEC_LABEL = "rayrig.spec"
RAY_DIRECTORY = "/var/lib/rayrig/ray"
"""On nodes: Ray's logs, sessions and spilled objects; /tmp/ray in the container."""
KEPT_SESSIONS = 3
STOP_SECONDS = 40
"""Ray drains up to 30 s on SIGTERM (seen)."""
NOFILE = 65536
STACK_BYTES = 64 * 2**20
LOG_BYTES = "50m"
LOG_FILES = 3
RAY_LOG_BYTES = 100 * 2**20
CDI_DEVICE = "nvidia.com/gpu=all"

START = f"""
ls -1dt /tmp/ray/session_2* 2>/dev/null | tail -n +{KEPT_SESSIONS + 1} | xargs -r rm -rf
exec ray start "$@"
"""
"""Runs in the container before Ray: a container that restarts for days must not fill the disk with old sessions."""


@dataclass(frozen=True, kw_only=True)
class RaySpec:
    """What every Ray container of a cluster has in common.

    Attributes:
        home: account, region and endpoint; the container's AWS_* settings.
        image: by digest.
        ports: all of Ray's ports.
        health_check: Ray's node health check.
        head_address: private address of the head.
        token_fingerprint: of the token that this container must use; a new token makes a new container.
    """

    home: Home
    image: str
    ports: Ports
    health_check: HealthCheck
    head_address: str
    token_fingerprint: str


@dataclass(frozen=True, kw_only=True)
class RayContainer:
    """One container to be.

    Attributes:
        argv: the `docker run` command.
        spec: value of the label SPEC_LABEL, `HASH/cpus=N`.
        sizes: object store and /dev/shm.
    """

    argv: tuple[str, ...]
    spec: str
    sizes: MemorySizes

    def matches(self, label: str | None, *, any_cpus: bool = False) -> bool:
        """Whether a running container's label says that it is this one.

        Args:
            label: the label found.
            any_cpus: accept another --num-cpus: the head's depends on whether there are workers, which only the
                fleet knows.
        """
        if label is None:
            return False
        return label == self.spec or (any_cpus and label.partition("/")[0] == self.spec.partition("/")[0])


def ray_container(node: Node, spec: RaySpec, facts: NodeFacts, *, cpu_count: int) -> RayContainer:
    """Builds a node's container from what is wanted and what the node is.

    Nothing in it depends on the other workers, so that adding a node leaves the rest alone.

    Args:
        node: the node.
        spec: what the cluster's containers share.
        facts: of this node.
        cpu_count: CPUs that Ray may schedule on it; 0 on a head that has workers.

    Raises:
        ValueError: too little memory.
    """
    sizes = memory_sizes(type_bytes=node.memory_bytes, shown_bytes=facts.system.memory_bytes)
    options = [
        *_docker_options(sizes, facts),
        *_gpu_options(node, facts),
        *(f"--env={name}={value}" for name, value in sorted(_environment(spec).items())),
        f"--volume={TOKEN_PATH}:{CONTAINER_TOKEN_PATH}:ro",
        f"--volume={RAY_DIRECTORY}:/tmp/ray",
    ]
    command = ray_start(node, spec, object_store_bytes=sizes.object_store_bytes)
    described = json.dumps([options, spec.image, START, command, spec.token_fingerprint])
    label = f"{hashlib.sha256(described.encode()).hexdigest()[:24]}/cpus={cpu_count}"
    argv = (
        "docker",
        "run",
        "--detach",
        f"--name={RAY_CONTAINER}",
        f"--label={SPEC_LABEL}={label}",
        *options,
        "--entrypoint=sh",
        spec.image,
        "-c",
        START,
        "rayrig-start",
        *command,
        f"--num-cpus={cpu_count}",
    )
    return RayContainer(argv=argv, spec=label, sizes=sizes)


def _docker_options(sizes: MemorySizes, facts: NodeFacts) -> list[str]:
    options = [
        # PID 1 must reap what Ray leaves behind.
        "--init",
        # A bridge would advertise addresses that other nodes cannot reach, and Ray's ports are many.
        "--network=host",
        # Comes back after any exit and after a reboot, but not after a stop on purpose (a drained node).
        "--restart=unless-stopped",
        f"--stop-timeout={STOP_SECONDS}",
        f"--shm-size={sizes.shm_bytes}",
        f"--user={CONTAINER_UID}:{CONTAINER_UID}",
        "--log-driver=json-file",
        f"--log-opt=max-size={LOG_BYTES}",
        f"--log-opt=max-file={LOG_FILES}",
    ]
    # Refused where the engine lacks CAP_SYS_RESOURCE (container nodes); NCCL and EFA want it on real ones.
    if facts.limits.can_raise:
        options += ["--ulimit=memlock=-1:-1", f"--ulimit=stack={STACK_BYTES}", f"--ulimit=nofile={NOFILE}:{NOFILE}"]
    return options


def _gpu_options(node: Node, facts: NodeFacts) -> list[str]:
    if node.gpu_count == 0:
        return []
    options: list[str] = []
    if CDI_DEVICE in facts.docker.cdi_devices:
        options.append(f"--device={CDI_DEVICE}")
    else:
        # Device files named one by one survive a systemd reload, which resets what the hook alone allowed.
        options.append("--gpus=all")
        options += [f"--device={path}" for path in facts.gpus.device_files]
    if facts.gpus.infiniband:
        options.append("--device=/dev/infiniband")
    return options


def _environment(spec: RaySpec) -> dict[str, str]:
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": CONTAINER_TOKEN_PATH,
        "RAY_ROTATION_MAX_BYTES": str(RAY_LOG_BYTES),
        "RAY_ROTATION_BACKUP_COUNT": "3",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's 3 s between SIGTERM and SIGKILL would cut off a stopped training's last checkpoint.
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
        "AUTOSCALER_METRIC_PORT": str(spec.ports.autoscaler_metrics),
        "DASHBOARD_METRIC_PORT": str(spec.ports.dashboard_metrics),
        "AWS_REGION": spec.home.region,
        "AWS_DEFAULT_REGION": spec.home.region,
        # botocore asks for the role's credentials once, for a second: on a busy node a job would run without any.
        "AWS_METADATA_SERVICE_TIMEOUT": "5",
        "AWS_METADATA_SERVICE_NUM_ATTEMPTS": "5",
        # Interfaces differ by instance type, so the wrong ones are excluded instead of naming the right one.
        "NCCL_SOCKET_IFNAME": "^lo,docker,veth",
    }
    if spec.home.endpoint.url is not None:
        environment["AWS_ENDPOINT_URL"] = spec.home.endpoint.url
    if spec.health_check != HealthCheck():
        environment |= {
            "RAY_health_check_initial_delay_ms": str(spec.health_check.initial_delay_ms),
            "RAY_health_check_period_ms": str(spec.health_check.period_ms),
            "RAY_health_check_timeout_ms": str(spec.health_check.timeout_ms),
            "RAY_health_check_failure_threshold": str(spec.health_check.failure_threshold),
        }
    return environment


def ray_start(node: Node, spec: RaySpec, *, object_store_bytes: int) -> list[str]:
    """Arguments of `ray start`, all but --num-cpus."""
    ports = spec.ports
    role = (
        [
            "--head",
            f"--port={ports.gcs}",
            "--include-dashboard=true",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={ports.dashboard}",
            f"--ray-client-server-port={ports.ray_client}",
        ]
        if node.role is Role.HEAD
        else [
            f"--address={spec.head_address}:{ports.gcs}",
            # What jobs ask for to land on workers; as many units as CPUs.
            f"--resources={json.dumps({WORKER_RESOURCE: node.cpu_count})}",
        ]
    )
    return [
        "--block",
        *role,
        f"--node-ip-address={node.private_ip}",
        f"--node-manager-port={ports.node_manager}",
        f"--object-manager-port={ports.object_manager}",
        f"--dashboard-agent-grpc-port={ports.dashboard_agent_grpc}",
        f"--dashboard-agent-listen-port={ports.dashboard_agent_listen}",
        f"--runtime-env-agent-port={ports.runtime_env_agent}",
        f"--metrics-export-port={ports.metrics_export}",
        f"--min-worker-port={ports.min_worker}",
        f"--max-worker-port={ports.max_worker}",
        f"--object-store-memory={object_store_bytes}",
        f"--num-gpus={node.gpu_count}",
        f"--labels=rayrig-node={node.name},rayrig-role={node.role},rayrig-market={node.market}",
        "--disable-usage-stats",
        "--log-color=false",
    ]
