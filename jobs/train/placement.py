"""Where a training's parts run: environment runners on workers, the learner in the driver or on a GPU."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from contract.errors import ConfigError
from contract.names import WORKER_RESOURCE

ENVS_PER_RUNNER = 16
"""Fewer environments in a process of its own do not pay for its start (5 CPU-seconds, measured)."""
RESOURCE_GRAIN = 10_000
"""Ray counts resources in steps of 1/10,000."""


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One alive Ray node, as far as placement cares."""

    name: str
    cpus: float
    worker_units: float
    """How much of the workers' own resource it offers; 0 on the head and on an embedded Ray."""


@dataclass(frozen=True, kw_only=True)
class RunnerPlan:
    """How many runners, with how many environments each, and what each asks for beside one CPU."""

    runners: int
    envs_per_runner: int
    resources: dict[str, float]
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        """For the log."""
        where = f"{self.nodes[0]}" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes ({', '.join(self.nodes)})"
        return f"{self.runners} runners x {self.envs_per_runner} environments on {where}"


def plan_runners(nodes: Sequence[NodeView], *, num_runners: int, num_envs: int) -> RunnerPlan:
    """Decides where environments run.

    Args:
        nodes: the alive nodes.
        num_runners: how many runners; 0 for as many as have CPUs and 16 environments each.
        num_envs: environments in all; rounded up to a multiple of the runners.

    Raises:
        ConfigError: no node has a CPU, or fewer CPUs than runners asked for.
    """
    workers = [node for node in nodes if node.worker_units > 0 and node.cpus >= 1]
    marked = bool(workers)
    workers = workers or [node for node in nodes if node.cpus >= 1]
    cpus = sum(int(node.cpus) for node in workers)
    if cpus == 0:
        raise ConfigError("no alive node offers a CPU for environment runners", next_step="pulumi up")
    if num_runners > cpus:
        raise ConfigError(
            f"{num_runners} runners asked for, the workers have {cpus} CPUs",
            where="num_runners",
            next_step=f"--set num_runners={cpus}, or more workers: pulumi config set workers N",
        )
    runners = num_runners or min(cpus, max(1, num_envs // ENVS_PER_RUNNER))
    resources: dict[str, float] = {}
    if marked:
        # A share that lets only so many runners onto one node spreads them evenly; Ray would pack them.
        per_node = math.ceil(runners / len(workers))
        smallest = min(node.worker_units for node in workers)
        fits = per_node <= min(int(node.cpus) for node in workers)
        share = smallest / per_node if fits else 1 / RESOURCE_GRAIN
        # Ray takes whole numbers above 1 only.
        share = math.floor(share) if share > 1 else max(math.floor(share * RESOURCE_GRAIN), 1) / RESOURCE_GRAIN
        resources[WORKER_RESOURCE] = share
    return RunnerPlan(
        runners=runners,
        envs_per_runner=math.ceil(num_envs / runners),
        resources=resources,
        nodes=tuple(node.name for node in workers),
    )
