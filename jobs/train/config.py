"""What a training is told: every setting with its unit and default. Nothing heavy is imported here."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from contract.errors import ConfigError


class Needs(NamedTuple):
    """What a job takes from the cluster while it runs."""

    runners: int
    """Processes of one CPU each, on the workers; 0 means as many as fit."""
    gpus: int


class JobConfig(BaseModel):
    """Base of every job's settings: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def needs(self) -> Needs:
        """What these settings take from the cluster."""
        return Needs(runners=0, gpus=0)


class PPOConfig(JobConfig):
    """PPO by RLlib. The defaults solve CartPole in about 100 k steps (measured: 32 environments, batch 2048)."""

    env: str = Field(default="CartPole-v1", description="a Gymnasium id, or module:callable that makes an environment")
    env_config: dict[str, object] = Field(default_factory=dict, description="keyword arguments of the environment")
    seed: int = Field(default=0, ge=0, lt=2**31, description="root of every random stream of the run")

    num_runners: int = Field(default=0, ge=0, description="environment runners; 0: as the cluster's workers allow")
    num_envs: int = Field(default=32, gt=0, description="environments in all, divided among the runners")
    learner_gpus: Literal[0, 1] = Field(default=0, description="1: the learner is an actor on a GPU; 0: in the driver")
    threads: int = Field(default=1, gt=0, description="torch threads of driver, learner and each runner")

    batch_size: int = Field(default=2048, gt=0, description="environment steps per iteration")
    minibatch_size: int = Field(default=512, gt=0, description="steps per gradient step")
    epochs: int = Field(default=6, gt=0, description="passes over each batch")
    lr: float = Field(default=2e-3, gt=0, description="learning rate at the start")
    lr_end: float = Field(default=3e-4, gt=0, description="learning rate after lr_decay_steps, linear between")
    lr_decay_steps: int = Field(default=120_000, gt=0, description="environment steps from lr to lr_end")
    gamma: float = Field(default=0.98, ge=0, le=1, description="discount per step")
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    clip: float = Field(default=0.2, gt=0, description="ratio clip")
    entropy_coefficient: float = Field(default=0.0, ge=0)
    grad_clip: float = Field(default=0.5, gt=0, description="global gradient norm")
    hidden: tuple[PositiveInt, ...] = Field(default=(64, 64), min_length=1, description="units of each hidden layer")
    activation: Literal["tanh", "relu"] = "tanh"

    target_return: float | None = Field(default=480.0, description="goal of the held evaluation; None: none")
    held_evaluations: int = Field(default=3, gt=0, description="evaluations in a row that must reach the goal")
    evaluate_every: int = Field(default=4, gt=0, description="iterations between evaluations")
    evaluation_episodes: int = Field(default=128, ge=1, description="full episodes per evaluation, one per slot")
    evaluation_greedy: bool = Field(default=False, description="take the likeliest action instead of sampling")

    max_env_steps: int = Field(default=1_000_000, gt=0, description="budget; with a goal, missing it is a failure")
    max_seconds: float = Field(default=3600.0, gt=0, description="budget of wall time")
    checkpoint_every: int = Field(default=20, gt=0, description="iterations between checkpoints")
    no_runner_timeout_seconds: float = Field(default=180.0, gt=0, description="how long to wait with no runner alive")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.minibatch_size > self.batch_size:
            raise ValueError("minibatch_size is larger than batch_size")
        if self.num_runners > self.num_envs:
            raise ValueError("more runners than environments")
        return self

    def needs(self) -> Needs:
        """Runners on workers, a GPU for the learner when asked for; the driver takes nothing."""
        return Needs(runners=self.num_runners, gpus=self.learner_gpus)


Config = TypeVar("Config", bound=JobConfig)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was most likely meant to be; None when none is close."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), None)


def parse_config(model: type[Config], values: Mapping[str, object], *, source: str) -> Config:
    """Builds a job's settings.

    Args:
        model: the job's config model.
        values: key to value; numbers may be text.
        source: where they came from, for the error.

    Raises:
        ConfigError: an unknown key (the nearest one is named) or a value that does not fit.
    """
    for key in values:
        if key not in model.model_fields:
            near = nearest(key, model.model_fields)
            raise ConfigError(
                f"there is no setting {key!r}",
                where=source,
                why=f"did you mean {near!r}?" if near else None,
                next_step=f"the settings are: {', '.join(sorted(model.model_fields))}",
            )
    try:
        return model.model_validate(values)
    except ValidationError as error:
        why = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'together'}: {e['msg']}" for e in error.errors())
        raise ConfigError("the settings do not fit", where=source, why=why) from error
