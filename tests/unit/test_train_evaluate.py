from typing import Any, Self

import gymnasium
import numpy as np
import pytest
import torch

from contract.errors import ConfigError
from jobs.train import environment
from jobs.train.evaluate import choose_actions, evaluate


class Fixed:
    """A distribution that always gives its logits' argmax."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    @classmethod
    def from_logits(cls, logits: torch.Tensor) -> Self:
        return cls(logits)

    def to_deterministic(self) -> Self:
        return self

    def sample(self) -> torch.Tensor:
        return self.logits.argmax(-1)


class Sampled(Fixed):
    def sample(self) -> torch.Tensor:
        return torch.distributions.Categorical(logits=self.logits).sample()


class Direct(Fixed):
    def sample(self) -> torch.Tensor:
        return self.logits


class Policy:
    """Pushes toward where the pole leans."""

    def __init__(self, distribution: type[Fixed]) -> None:
        self.distribution = distribution

    def forward_inference(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        lean = batch["obs"][:, 2]
        return {"action_dist_inputs": torch.stack([-lean, lean], dim=1)}

    def get_inference_action_dist_cls(self) -> type[Fixed]:
        return self.distribution


def _scalar_returns(episodes: int) -> list[float]:
    found = []
    cart = gymnasium.make("CartPole-v1")
    for seed in range(episodes):
        observation, _ = cart.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = cart.step(int(observation[2] > 0))
            total += float(reward)
            over = terminated or truncated
        found.append(total)
    return found


def _evaluate(policy: Any, **changes: Any) -> Any:
    given: dict[str, Any] = {
        "env": "CartPole-v1",
        "env_config": {},
        "episodes": 100,
        "seed": 0,
        "index": 0,
        "greedy": True,
    }
    return evaluate(policy, **(given | changes))


def test_first_full_episodes_of_every_slot_count_and_match_the_scalar_environment() -> None:
    """T-12: the vectorised environment gives the same returns, and reset rows count for nothing."""
    expected = np.array(_scalar_returns(100))
    found = _evaluate(Policy(Fixed))
    assert found.episodes == 100
    assert found.env_steps == pytest.approx(found.mean * 100)
    # Means of 100 episodes of the same distribution: within four standard errors of their difference.
    assert abs(found.mean - expected.mean()) < 4 * expected.std() * (2 / 100) ** 0.5


def test_every_evaluation_has_seeds_of_its_own_and_is_reproducible() -> None:
    first, again, other = (_evaluate(Policy(Sampled), index=index, greedy=False) for index in (0, 0, 1))
    assert first == again
    assert first != other


def test_training_does_not_depend_on_how_often_it_is_evaluated() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    _evaluate(Policy(Sampled), episodes=2, greedy=False)
    assert torch.equal(torch.rand(3), expected)


def test_bounded_actions_are_scaled_to_the_environments_range() -> None:
    class Centre:
        def forward_inference(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {"action_dist_inputs": batch["obs"]}

        def get_inference_action_dist_cls(self) -> type[Fixed]:
            return Direct

    space = gymnasium.spaces.Box(low=np.float32(0.0), high=np.float32(10.0), shape=(3,))
    actions = choose_actions(Centre(), np.array([[-1.0, 0.0, 3.0]]), space, greedy=True)
    assert actions.tolist() == [[0.0, 5.0, 10.0]]


def test_an_unknown_environment_names_its_nearest_neighbour() -> None:
    with pytest.raises(ConfigError, match="CartPole-v1"):
        environment.check("CartPol-v1", {})


def test_a_missing_module_is_named() -> None:
    with pytest.raises(ConfigError, match="no_such_module"):
        environment.check("no_such_module:make", {})


def test_a_callable_is_an_environment_too() -> None:
    environment.check("gymnasium.envs.classic_control:CartPoleEnv", {})
    vector = environment.make_vector("gymnasium.envs.classic_control:CartPoleEnv", {}, 2)
    assert vector.num_envs == 2
    vector.close()


def test_spaces_that_the_networks_do_not_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="only Box is supported"):
        environment.check("Taxi-v3", {})
