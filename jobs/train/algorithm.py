"""The one place where RLlib's configuration is built and its result keys are read."""

import hashlib
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig as RLlibPPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from contract.errors import JobError
from contract.names import WORKER_RESOURCE
from jobs.train import environment
from jobs.train.config import PPOConfig
from jobs.train.placement import NodeView, RunnerPlan

SAMPLE_TIMEOUT_SECONDS = 60.0
"""How long RLlib waits for one round of samples before it goes on without the late runners."""
LEARNER_KEYS = (
    "policy_loss",
    "vf_loss",
    "entropy",
    "mean_kl_loss",
    "vf_explained_var",
    "gradients_default_optimizer_global_norm",
)


@dataclass(frozen=True, kw_only=True)
class IterationResult:
    """What one iteration reported, under names of our own."""

    env_steps: int
    return_mean: float | None
    """Mean return of the episodes that ended in this iteration; None when none did."""
    episodes: int
    healthy_runners: int
    learner: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class ProcessThreads:
    """Thread counts of one process."""

    node: str
    pid: int
    omp: str | None
    torch_threads: int


def alive_nodes() -> list[NodeView]:
    """The alive nodes of the Ray that this process is connected to."""
    views = []
    for node in ray.nodes():
        if node["Alive"]:
            resources: Mapping[str, float] = node["Resources"]
            views.append(
                NodeView(
                    name=str(node["NodeManagerAddress"]),
                    cpus=resources.get("CPU", 0.0),
                    worker_units=resources.get(WORKER_RESOURCE, 0.0),
                )
            )
    return views


def build(config: PPOConfig, plan: RunnerPlan) -> Any:  # noqa: ANN401 - RLlib is untyped here
    """Builds RLlib's PPO on the connected Ray: runners as planned, one learner here or on a GPU."""
    # Its warnings are of its own migration from an older API.
    logging.getLogger("ray.rllib").setLevel(logging.ERROR)
    env, env_config = config.env, config.env_config
    if environment.is_callable_name(env):
        # Runners import the module themselves: a registry that only the driver has is not seen on workers.
        register_env(env, lambda given: environment.make(config.env, dict(given)))
    decays = config.lr_end != config.lr
    algorithm_config = (
        RLlibPPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(
            num_env_runners=plan.runners,
            num_envs_per_env_runner=plan.envs_per_runner,
            num_cpus_per_env_runner=1,
            custom_resources_per_env_runner=plan.resources,
            sample_timeout_s=SAMPLE_TIMEOUT_SECONDS,
        )
        .learners(num_learners=config.learner_gpus, num_gpus_per_learner=config.learner_gpus)
        .training(
            train_batch_size_per_learner=config.batch_size,
            minibatch_size=config.minibatch_size,
            num_epochs=config.epochs,
            lr=[[0, config.lr], [config.lr_decay_steps, config.lr_end]] if decays else config.lr,
            gamma=config.gamma,
            lambda_=config.gae_lambda,
            clip_param=config.clip,
            # RLlib's own value clip kills the critic's gradient where returns are large.
            vf_clip_param=math.inf,
            use_kl_loss=False,
            entropy_coeff=config.entropy_coefficient,
            grad_clip=config.grad_clip,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(config.hidden), fcnet_activation=config.activation, vf_share_layers=False
            )
        )
        .fault_tolerance(restart_failed_env_runners=True)
        .debugging(seed=config.seed, log_level="ERROR")
    )
    return algorithm_config.build_algo()


def push_weights(algorithm: Any) -> None:  # noqa: ANN401 - RLlib is untyped here
    """Gives every runner the learner's weights and proves that it has them.

    RLlib 2.60 sends weights without waiting and drops them silently while an earlier request to the runner is under
    way (`max_requests_in_flight_per_env_runner`): after a restore, runners then sample with their initial weights.

    Raises:
        JobError: a runner does not have them.
    """
    local = algorithm.get_module()
    local.set_state(algorithm.learner_group.get_weights()["default_policy"])
    state, expected = local.get_state(), _fingerprint(local)

    def take(runner: Any) -> str:  # noqa: ANN401 - RLlib is untyped here
        runner.module.set_state(state)
        return _fingerprint(runner.module)

    runners = algorithm.env_runner_group.foreach_env_runner(
        take, local_env_runner=False, timeout_seconds=SAMPLE_TIMEOUT_SECONDS
    )
    if any(found != expected for found in runners):
        raise JobError("an environment runner did not take the learner's weights")


def _fingerprint(module: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for name, values in sorted(module.state_dict().items()):
        digest.update(name.encode() + values.cpu().numpy().tobytes())
    return digest.hexdigest()


def set_threads(threads: int) -> ProcessThreads:
    """Pins torch's threads in this process and says what holds."""
    torch.set_num_threads(threads)
    return ProcessThreads(
        node=ray.util.get_node_ip_address(),
        pid=os.getpid(),
        omp=os.environ.get("OMP_NUM_THREADS"),
        torch_threads=torch.get_num_threads(),
    )


def pin_runner_threads(algorithm: Any, threads: int) -> list[ProcessThreads]:  # noqa: ANN401 - RLlib is untyped here
    """Pins every runner's threads; what each then has."""
    found = algorithm.env_runner_group.foreach_env_runner(
        lambda _: set_threads(threads), local_env_runner=False, timeout_seconds=SAMPLE_TIMEOUT_SECONDS
    )
    return list(found)


def read_result(algorithm: Any, result: Mapping[str, Any]) -> IterationResult:  # noqa: ANN401 - RLlib is untyped here
    """Turns RLlib's result of one iteration into ours; an iteration without samples has 0 steps."""
    runners: Mapping[str, Any] = result.get("env_runners") or {}
    healthy = int(algorithm.env_runner_group.num_healthy_remote_workers())
    learner: Mapping[str, Any] = (result.get("learners") or {}).get("default_policy") or {}
    return IterationResult(
        env_steps=int(_known(runners.get("num_env_steps_sampled")) or 0),
        return_mean=_known(runners.get("episode_return_mean")),
        episodes=int(_known(runners.get("num_episodes")) or 0),
        healthy_runners=healthy,
        learner={key: float(learner[key]) for key in LEARNER_KEYS if key in learner},
    )


def _known(value: float | None) -> float | None:
    """RLlib says NaN, or nothing, of what did not happen."""
    return None if value is None or math.isnan(value) else float(value)
