"""The Ray container: its flags by fact, its hash, and the memory sizes."""

import pytest
from bootstrap_samples import GIB, HOME, IMAGE, facts, gpu_facts, node, ray_spec
from hypothesis import given
from hypothesis import strategies as st

from bootstrap.container import ray_container
from bootstrap.sizing import OBJECT_STORE_CAP_BYTES, OBJECT_STORE_FLOOR_BYTES, memory_sizes
from contract.inventory import Endpoint, EndpointKind, HealthCheck, Ports
from contract.names import CONTAINER_TOKEN_PATH, TOKEN_PATH
from contract.resources import Home


def argv(the_node=None, spec=None, the_facts=None, cpu_count=2):
    made = ray_container(the_node or node(), spec or ray_spec(), the_facts or facts(), cpu_count=cpu_count)
    return list(made.argv)


@given(
    type_bytes=st.integers(min_value=GIB // 2, max_value=4096 * GIB),
    shown=st.floats(min_value=0.5, max_value=2.0, allow_nan=False),
)
def test_the_object_store_always_fits_into_shm_and_memory(type_bytes, shown):
    shown_bytes = max(int(type_bytes * shown), GIB // 2)
    sizes = memory_sizes(type_bytes=type_bytes, shown_bytes=shown_bytes)
    usable = min(type_bytes, shown_bytes)
    assert OBJECT_STORE_FLOOR_BYTES <= sizes.object_store_bytes <= min(OBJECT_STORE_CAP_BYTES, 0.3 * usable + 2**20)
    assert sizes.object_store_bytes + 64 * 2**20 <= sizes.shm_bytes <= 0.75 * usable


def test_a_container_node_that_shows_its_host_is_sized_by_its_type():
    sizes = memory_sizes(type_bytes=8 * GIB, shown_bytes=256 * GIB)
    assert sizes == memory_sizes(type_bytes=8 * GIB, shown_bytes=8 * GIB)
    assert 2.2 * GIB < sizes.object_store_bytes < 2.4 * GIB


def test_a_few_kilobytes_less_after_a_reboot_change_nothing():
    one = memory_sizes(type_bytes=16 * GIB, shown_bytes=16_500_000_000)
    assert one == memory_sizes(type_bytes=16 * GIB, shown_bytes=16_500_000_000 - 3_000_000)


def test_too_little_memory_is_refused():
    with pytest.raises(ValueError, match="too few"):
        memory_sizes(type_bytes=200 * 2**20, shown_bytes=200 * 2**20)


def test_every_port_is_pinned_and_the_dashboard_is_on_loopback():
    head = argv(node("head", ip="10.77.0.11"))
    ports = Ports()
    for flag in (
        f"--port={ports.gcs}",
        f"--node-manager-port={ports.node_manager}",
        f"--object-manager-port={ports.object_manager}",
        f"--dashboard-agent-grpc-port={ports.dashboard_agent_grpc}",
        f"--dashboard-agent-listen-port={ports.dashboard_agent_listen}",
        f"--runtime-env-agent-port={ports.runtime_env_agent}",
        f"--metrics-export-port={ports.metrics_export}",
        f"--min-worker-port={ports.min_worker}",
        f"--max-worker-port={ports.max_worker}",
        f"--ray-client-server-port={ports.ray_client}",
        "--dashboard-host=127.0.0.1",
        "--node-ip-address=10.77.0.11",
        "--block",
        "--disable-usage-stats",
    ):
        assert flag in head
    assert f"--env=AUTOSCALER_METRIC_PORT={ports.autoscaler_metrics}" in head
    assert f"--env=DASHBOARD_METRIC_PORT={ports.dashboard_metrics}" in head


def test_a_worker_joins_by_the_heads_private_address_and_offers_the_workers_resource():
    worker = argv()
    assert "--address=10.77.0.11:6379" in worker
    assert '--resources={"rayrig_worker": 2}' in worker
    assert "--num-cpus=2" in worker
    assert "--num-gpus=0" in worker
    assert not [flag for flag in worker if flag.startswith("--dashboard-host")]


def test_the_container_is_unprivileged_supervised_and_on_the_host_network():
    made = argv()
    for flag in ("--init", "--network=host", "--restart=unless-stopped", "--user=1000:1000"):
        assert flag in made
    assert "--privileged" not in made
    assert f"--volume={TOKEN_PATH}:{CONTAINER_TOKEN_PATH}:ro" in made
    assert "--env=RAY_AUTH_MODE=token" in made
    assert "--env=RAY_JOB_STOP_WAIT_TIME_S=30" in made
    assert {"--env=AWS_METADATA_SERVICE_TIMEOUT=5", "--env=AWS_METADATA_SERVICE_NUM_ATTEMPTS=5"} <= set(made)
    assert "--env=NCCL_SOCKET_IFNAME=^lo,docker,veth" in made
    assert not [flag for flag in made if flag.startswith(("--ipc", "--pid", "--cap-add", "--security-opt"))]
    assert made.index(IMAGE) > made.index("--entrypoint=sh")


def test_limits_are_raised_only_where_the_engine_can():
    assert not [flag for flag in argv() if flag.startswith("--ulimit")]
    raised = argv(the_facts=facts(limits__can_raise=True))
    assert {"--ulimit=memlock=-1:-1", "--ulimit=stack=67108864", "--ulimit=nofile=65536:65536"} <= set(raised)


def test_gpus_come_by_cdi_where_the_engine_knows_them_else_by_hook_and_device_files():
    gpu_node = node(gpus=4)
    by_cdi = argv(gpu_node, the_facts=gpu_facts(docker__cdi_devices=["nvidia.com/gpu=0", "nvidia.com/gpu=all"]))
    assert "--device=nvidia.com/gpu=all" in by_cdi
    assert "--gpus=all" not in by_cdi
    by_hook = argv(gpu_node, the_facts=gpu_facts())
    assert {"--gpus=all", "--device=/dev/nvidia0", "--device=/dev/nvidiactl", "--num-gpus=4"} <= set(by_hook)
    assert "--device=/dev/infiniband" in argv(gpu_node, the_facts=gpu_facts(gpus__infiniband=True))


def test_the_endpoint_is_passed_only_when_it_is_not_aws():
    assert "--env=AWS_ENDPOINT_URL=http://198.18.77.1:5001" in argv()
    aws = Home(account_id=HOME.account_id, region="eu-west-1", endpoint=Endpoint(kind=EndpointKind.AWS))
    made = argv(spec=ray_spec(home=aws))
    assert not [flag for flag in made if "AWS_ENDPOINT_URL" in flag]
    assert "--env=AWS_REGION=eu-west-1" in made


def test_the_health_check_is_passed_only_when_it_is_not_rays_own():
    assert not [flag for flag in argv() if "health_check" in flag]
    quick = HealthCheck(initial_delay_ms=3000, period_ms=1000, timeout_ms=2000, failure_threshold=3)
    made = argv(spec=ray_spec(health_check=quick))
    assert {"--env=RAY_health_check_period_ms=1000", "--env=RAY_health_check_initial_delay_ms=3000"} <= set(made)


def test_the_label_changes_with_the_description_and_only_then():
    label = ray_container(node(), ray_spec(), facts(), cpu_count=2).spec
    assert ray_container(node(), ray_spec(), facts(), cpu_count=2).spec == label
    for other in (
        ray_container(node(), ray_spec(token_fingerprint="f" * 16), facts(), cpu_count=2),
        ray_container(node(), ray_spec(image=IMAGE.replace("ab", "cd")), facts(), cpu_count=2),
        ray_container(node(ip="10.77.0.11"), ray_spec(), facts(), cpu_count=2),
        ray_container(node(), ray_spec(), facts(limits__can_raise=True), cpu_count=2),
    ):
        assert other.spec.partition("/")[0] != label.partition("/")[0]


def test_a_heads_cpus_are_the_fleets_business():
    alone = ray_container(node("head"), ray_spec(), facts(), cpu_count=2)
    with_workers = ray_container(node("head"), ray_spec(), facts(), cpu_count=0)
    assert not with_workers.matches(alone.spec)
    assert with_workers.matches(alone.spec, any_cpus=True)
    assert not with_workers.matches(None, any_cpus=True)
