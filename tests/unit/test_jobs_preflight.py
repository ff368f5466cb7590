from datetime import UTC, datetime

import pytest
from jobs_inventory import INVENTORY

from contract.errors import JobError, WrongAccountError
from contract.inventory import Inventory
from jobs import preflight
from jobs.client import RayNode
from jobs.train.config import Needs


@pytest.fixture
def inventory() -> Inventory:
    return Inventory.model_validate(INVENTORY)


def _node(address: str = "10.77.0.4", *, alive: bool = True, **resources: float) -> RayNode:
    return RayNode(address=address, alive=alive, head=False, resources=resources)


def test_a_cluster_past_its_deadline_is_refused(inventory: Inventory) -> None:
    preflight.check_deadline(inventory, datetime(2099, 1, 1, tzinfo=UTC))
    with pytest.raises(JobError, match=r"ended itself.*pulumi up"):
        preflight.check_deadline(inventory, datetime(2101, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("endpoint", "shell"),
    [
        ({"kind": "aws"}, "http://127.0.0.1:1"),
        ({"kind": "rehearsal", "url": "http://127.0.0.1:1"}, None),
        ({"kind": "rehearsal", "url": "http://127.0.0.1:1"}, "http://127.0.0.1:2"),
    ],
)
def test_a_shell_that_talks_to_another_aws_is_refused(
    endpoint: dict[str, str], shell: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if shell:
        monkeypatch.setenv("AWS_ENDPOINT_URL", shell)
    with pytest.raises(WrongAccountError, match="another AWS"):
        preflight.check_endpoint(Inventory.model_validate(INVENTORY | {"endpoint": endpoint}))


def test_the_clusters_own_endpoint_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1/")
    endpoint = {"kind": "rehearsal", "url": "http://127.0.0.1:1"}
    preflight.check_endpoint(Inventory.model_validate(INVENTORY | {"endpoint": endpoint}))


def test_gpus_that_no_node_has_are_refused() -> None:
    """J-01: Ray would wait for 900 s."""
    with pytest.raises(JobError, match=r"needs 8 GPUs, the cluster has 1"):
        preflight.check_needs(Needs(runners=1, gpus=8), [_node(CPU=2, GPU=1), _node(alive=False, GPU=8)])


def test_more_runners_than_cpus_are_refused() -> None:
    with pytest.raises(JobError, match=r"needs 5 CPUs, the cluster has 4"):
        preflight.check_needs(Needs(runners=5, gpus=0), [_node(CPU=2), _node(CPU=2)])


def test_a_cluster_without_any_cpu_is_refused() -> None:
    with pytest.raises(JobError, match=r"needs 1 CPU, the cluster has 0"):
        preflight.check_needs(Needs(runners=0, gpus=0), [_node()])


def test_what_fits_passes() -> None:
    preflight.check_needs(Needs(runners=4, gpus=1), [_node(CPU=2), _node(CPU=2, GPU=1)])


def test_nodes_that_ray_does_not_see_are_named(inventory: Inventory) -> None:
    assert preflight.missing_nodes(inventory, [_node(alive=False)]) == ["head"]
    assert preflight.missing_nodes(inventory, [_node()]) == []
