"""What can be submitted: entries are data; their code is named, not imported."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from contract.errors import ConfigError

if TYPE_CHECKING:
    from jobs.train.config import JobConfig


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One job of the catalog."""

    name: str
    summary: str
    module: str
    """Run as `python -m MODULE --run-uri … --config …` on the head."""
    config: str
    """The settings' model, `module:class`."""
    places: str
    """Where its parts run, for the plan that is printed before submission."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Settings that differ from the model's own defaults."""

    def config_model(self) -> "type[JobConfig]":
        """Imports the settings' model."""
        module, _, name = self.config.partition(":")
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


ENTRIES: Mapping[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name="ppo",
            summary="PPO by RLlib; solves CartPole-v1 by default",
            module="jobs.train.ppo",
            config="jobs.train.config:PPOConfig",
            places="driver and learner on the head, environment runners on the workers",
        ),
    )
}


def find_entry(name: str) -> Entry:
    """The entry of that name; raises ConfigError naming the nearest one."""
    if name in ENTRIES:
        return ENTRIES[name]
    from jobs.train.config import nearest  # noqa: PLC0415 - pydantic is not needed for --help

    near = nearest(name, ENTRIES)
    raise ConfigError(
        f"there is no job {name!r}",
        why=f"did you mean {near!r}?" if near else None,
        next_step=f"the catalog has: {', '.join(ENTRIES)}",
    )
