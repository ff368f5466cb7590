"""Which cluster a job goes to: a file, the current stack, or none (an embedded Ray)."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contract.errors import ConfigError, JobError
from contract.inventory import Inventory, parse_inventory, read_inventory

INVENTORY_VARIABLE = "RAYRIG_INVENTORY"
PROJECT_FILE = "Pulumi.yaml"
PULUMI_SECONDS = 60.0
"""`pulumi stack output` takes 0.1 s with local state, a few seconds with a remote backend."""
NOT_LOGGED_IN = 3
"""Exit code of pulumi without a login."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where a job goes; `inventory` is None for an embedded Ray and `why` says how that came."""

    inventory: Inventory | None
    why: str


def project_directory(start: Path) -> Path | None:
    """The nearest folder upwards that holds a Pulumi project."""
    return next((folder for folder in (start, *start.parents) if (folder / PROJECT_FILE).is_file()), None)


def find_cluster(
    *,
    inventory: Path | None = None,
    stack: str | None = None,
    directory: Path,
    environ: Mapping[str, str] = os.environ,
) -> Found:
    """Finds the cluster.

    Args:
        inventory: an inventory file; else the variable RAYRIG_INVENTORY names one.
        stack: a stack; else PULUMI_STACK, else the selected one.
        directory: where the command was called.
        environ: the environment.

    Raises:
        ConfigError: the file or the stack named cannot be used.
        JobError: the stack has no cluster, or pulumi does not answer.
    """
    file = inventory or (Path(environ[INVENTORY_VARIABLE]) if environ.get(INVENTORY_VARIABLE) else None)
    if file is not None:
        return Found(inventory=read_inventory(file), why=f"inventory file {file}")
    named = stack or environ.get("PULUMI_STACK") or None
    project, pulumi = project_directory(directory), shutil.which("pulumi", path=environ.get("PATH"))
    if project is None or pulumi is None:
        missing = f"there is no {PROJECT_FILE} here" if project is None else "the pulumi command is not installed"
        if named:
            raise ConfigError(f"cannot look up the stack {named!r}", why=missing)
        return Found(inventory=None, why=missing)
    return _ask_pulumi(pulumi, project, named, environ)


def _ask_pulumi(pulumi: str, project: Path, named: str | None, environ: Mapping[str, str]) -> Found:
    argv = [pulumi, "stack", "output", "cluster", "--json", "--non-interactive"]
    try:
        answer = subprocess.run(
            [*argv, *(["--stack", named] if named else [])],
            cwd=project,
            env={**environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
            capture_output=True,
            text=True,
            timeout=PULUMI_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JobError(
            f"pulumi did not answer within {PULUMI_SECONDS:.0f} s",
            where="pulumi stack output cluster",
            next_step="check the backend (`pulumi whoami -v`), or give --inventory FILE",
        ) from error
    if answer.returncode == 0:
        where = f"stack {named}" if named else "the selected stack"
        return Found(inventory=parse_inventory(answer.stdout, source=where), why=where)
    words = answer.stderr.strip().removeprefix("error: ")
    label = f"stack {named}" if named else "the selected stack"
    if "no stack named" in words:
        raise ConfigError(words, next_step="pulumi stack ls")
    if "does not have output property" in words:
        raise JobError(
            f"{label} has no cluster",
            next_step="pulumi up, or train on this machine: python -m jobs.submit ppo --local",
        )
    if not named and ("no stack selected" in words or answer.returncode == NOT_LOGGED_IN):
        return Found(inventory=None, why="no stack is selected" if "no stack" in words else "pulumi is not logged in")
    raise JobError(f"pulumi cannot read {label}", why=words, next_step="pulumi stack output cluster --json")
