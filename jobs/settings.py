"""Settings from the command line: `--config FILE.yaml`, then `--set key=value`, later ones win."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from contract.errors import ConfigError


def read_file(path: Path) -> dict[str, object]:
    """Reads a YAML (or JSON) mapping; raises ConfigError when it is none."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("cannot read the settings", where=str(path), why=error.strerror) from error
    except yaml.YAMLError as error:
        raise ConfigError("the settings are not YAML", where=str(path), why=str(error)) from error
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError("the settings are not a mapping of names to values", where=str(path))
    return value


def parse_assignment(text: str) -> tuple[str, object]:
    """`key=value`, the value read as YAML: `lr=1e-3`, `hidden=[64,64]`, `target_return=null`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"not key=value: {text!r}", where="--set")
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"cannot read the value of {key}", where="--set", why=str(error)) from error


def merge(defaults: Mapping[str, object], file: Path | None, assignments: Sequence[str]) -> dict[str, object]:
    """All settings given, later sources winning; raises ConfigError for what cannot be read."""
    merged = dict(defaults)
    if file is not None:
        merged |= read_file(file)
    return merged | dict(map(parse_assignment, assignments))
