"""Environments by name: a Gymnasium id, or `module:callable` in code that every node has."""

import importlib
import re
from collections.abc import Callable, Mapping

import gymnasium

from contract.errors import ConfigError
from jobs.train.config import nearest

CALLABLE_PATTERN = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
"""`module:callable`; Gymnasium's own `module:Name-v0` has a dash, which no Python name has."""


def is_callable_name(name: str) -> bool:
    """Whether `name` is `module:callable` rather than a Gymnasium id."""
    return CALLABLE_PATTERN.match(name) is not None


def load_callable(name: str) -> Callable[..., gymnasium.Env]:
    """Imports `module:callable`; raises ConfigError naming what is missing."""
    module, _, attribute = name.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"cannot load the environment {name}",
            why=str(error),
            next_step="the module must be in the image, or on PYTHONPATH of every node",
        ) from error
    if not callable(loaded):
        raise ConfigError(f"the environment {name} is not callable")
    return loaded  # type: ignore[no-any-return]


def make(name: str, config: Mapping[str, object]) -> gymnasium.Env:
    """One environment; raises ConfigError for an unknown id (the nearest one is named) or wrong arguments."""
    try:
        if is_callable_name(name):
            return load_callable(name)(**config)
        return gymnasium.make(name, **config)
    except (gymnasium.error.Error, TypeError) as error:
        near = nearest(name, gymnasium.registry)
        raise ConfigError(
            f"cannot make the environment {name!r}",
            where="env",
            why=str(error),
            next_step=f"did you mean {near}?" if near and near != name else "see env_config",
        ) from error


def make_vector(name: str, config: Mapping[str, object], slots: int) -> gymnasium.vector.VectorEnv:
    """As many environments as slots, in this process; the environment's own vectorised form where it has one."""
    if is_callable_name(name):
        return gymnasium.vector.SyncVectorEnv([lambda: make(name, config) for _ in range(slots)])
    mode = "vector_entry_point" if gymnasium.spec(name).vector_entry_point else "sync"
    return gymnasium.make_vec(name, num_envs=slots, vectorization_mode=mode, **config)


def check(name: str, config: Mapping[str, object]) -> None:
    """Makes and resets one environment and looks at its spaces.

    Raises:
        ConfigError: it can't be made or reset, or its spaces are none that the default networks take.
    """
    environment = make(name, config)
    try:
        environment.reset(seed=0)
    finally:
        environment.close()
    action, observation = environment.action_space, environment.observation_space
    if not isinstance(action, gymnasium.spaces.Discrete | gymnasium.spaces.Box):
        raise ConfigError(f"{name} has actions of {action}; Discrete and Box are supported", where="env")
    if not isinstance(observation, gymnasium.spaces.Box):
        raise ConfigError(
            f"{name} has observations of {observation}; only Box is supported",
            where="env",
            next_step="wrap it with gymnasium.wrappers.FlattenObservation in a module:callable",
        )
