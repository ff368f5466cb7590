import pytest

from contract.errors import ConfigError
from contract.names import WORKER_RESOURCE
from jobs.train.placement import NodeView, plan_runners

HEAD = NodeView(name="head", cpus=0, worker_units=0)


def _worker(name: str, cpus: float = 2) -> NodeView:
    return NodeView(name=name, cpus=cpus, worker_units=cpus)


def test_runners_go_to_workers_and_spread_over_them() -> None:
    plan = plan_runners([HEAD, _worker("a"), _worker("b")], num_runners=0, num_envs=32)
    assert (plan.runners, plan.envs_per_runner, plan.nodes) == (2, 16, ("a", "b"))
    # All of a node's units for one runner: Ray cannot pack both onto one node.
    assert plan.resources == {WORKER_RESOURCE: 2}


def test_a_head_with_cpus_gets_no_runner_where_there_are_workers() -> None:
    head = NodeView(name="head", cpus=8, worker_units=0)
    assert plan_runners([head, _worker("a")], num_runners=0, num_envs=64).nodes == ("a",)


def test_every_planned_runner_fits() -> None:
    for cpus in (1, 2, 4, 7):
        for workers in (1, 2, 3):
            for runners in range(1, cpus * workers + 1):
                nodes = [HEAD, *(_worker(f"w{i}", cpus) for i in range(workers))]
                plan = plan_runners(nodes, num_runners=runners, num_envs=64)
                share = plan.resources[WORKER_RESOURCE]
                assert share <= 1 or share == int(share), "Ray takes whole numbers above 1 only"
                room = sum(min(int(node.cpus), int(node.worker_units / share + 1e-9)) for node in nodes[1:])
                assert room >= runners, (cpus, workers, runners, share)


def test_without_marked_workers_any_cpu_will_do() -> None:
    plan = plan_runners([NodeView(name="laptop", cpus=8, worker_units=0)], num_runners=0, num_envs=32)
    assert (plan.runners, plan.resources) == (2, {})


def test_environments_are_rounded_up_to_whole_runners() -> None:
    assert plan_runners([_worker("a", 4)], num_runners=3, num_envs=32).envs_per_runner == 11


def test_more_runners_than_cpus_is_refused() -> None:
    with pytest.raises(ConfigError, match="5 runners asked for, the workers have 4 CPUs"):
        plan_runners([HEAD, _worker("a"), _worker("b")], num_runners=5, num_envs=32)


def test_a_cluster_of_a_head_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="no alive node offers a CPU"):
        plan_runners([HEAD], num_runners=0, num_envs=32)
