"""Held evaluation: full episodes on environments and seeds of their own, one episode per slot."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch

from contract.errors import JobError
from jobs.train.environment import make_vector

LONGEST_EPISODE = 100_000
"""Steps after which an episode counts as endless."""
EVALUATION_STREAM = 1
"""Branch of the run's seed tree; the runners' streams are RLlib's own, derived from the run's seed."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Returns of `episodes` full episodes."""

    mean: float
    lowest: float
    highest: float
    episodes: int
    env_steps: int


def choose_actions(module: Any, observations: Any, space: gymnasium.Space, *, greedy: bool) -> Any:  # noqa: ANN401 - RLlib is untyped here
    """The policy's actions for a batch of observations, as the environment takes them."""
    with torch.inference_mode():
        inputs = module.forward_inference({"obs": torch.as_tensor(observations, dtype=torch.float32)})
        distribution = module.get_inference_action_dist_cls().from_logits(inputs["action_dist_inputs"])
        actions = (distribution.to_deterministic() if greedy else distribution).sample().numpy()
    if isinstance(space, gymnasium.spaces.Box):
        # RLlib trains with actions scaled to [-1, 1]; the environment wants its own range.
        bounded = np.isfinite(space.low) & np.isfinite(space.high)
        scaled = space.low + (np.clip(actions, -1, 1) + 1) * (space.high - space.low) / 2
        return np.where(bounded, scaled, actions).astype(space.dtype)
    return actions


def evaluate(
    module: Any,  # noqa: ANN401 - RLlib's module is untyped here
    *,
    env: str,
    env_config: Mapping[str, object],
    episodes: int,
    seed: int,
    index: int,
    greedy: bool,
) -> Evaluation:
    """Plays one fresh full episode in each of `episodes` slots.

    Only the first episode of a slot counts: taking whatever ends first would favour short episodes.

    Args:
        module: an RLModule with `forward_inference`.
        env: the environment's name.
        env_config: its keyword arguments.
        episodes: how many.
        seed: the run's seed.
        index: number of this evaluation in the run; each has seeds of its own.
        greedy: the likeliest action instead of a sampled one.

    Raises:
        JobError: an episode did not end within 100,000 steps.
    """
    seeds = np.random.SeedSequence([seed, EVALUATION_STREAM, index]).generate_state(2)
    slots = make_vector(env, env_config, episodes)
    returns = np.zeros(episodes)
    lengths = np.zeros(episodes, dtype=int)
    running = np.ones(episodes, dtype=bool)
    try:
        # Training must not depend on how often it is evaluated: torch's global stream is put back afterwards.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seeds[0]))
            observations, _ = slots.reset(seed=int(seeds[1]) % 2**31)
            for _ in range(LONGEST_EPISODE):
                actions = choose_actions(module, observations, slots.single_action_space, greedy=greedy)
                observations, rewards, terminated, truncated, _ = slots.step(actions)
                returns += np.where(running, rewards, 0.0)
                lengths += running
                running &= ~(terminated | truncated)
                if not running.any():
                    break
            else:
                raise JobError(
                    f"an evaluation episode of {env} did not end within {LONGEST_EPISODE} steps",
                    next_step="give the environment a time limit",
                )
    finally:
        slots.close()
    return Evaluation(
        mean=float(returns.mean()),
        lowest=float(returns.min()),
        highest=float(returns.max()),
        episodes=episodes,
        env_steps=int(lengths.sum()),
    )
