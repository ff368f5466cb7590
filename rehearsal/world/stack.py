"""The stack of a world: its file backend, and its configuration as the lab wants it."""

import subprocess
from collections.abc import Mapping

import yaml

from contract.errors import RayrigError
from rehearsal.double.plugin import install
from rehearsal.world.environment import pulumi_environment
from rehearsal.world.places import PROJECT, Places, write_private
from rehearsal.world.record import Lab, World

LAB_INSTANCE_TYPE = "m7i.large"
PULUMI_SECONDS = 60


def make_stack(place: Places, world: World) -> None:
    """Gives a world that is up a stack of its own.

    Raises:
        RayrigError: Pulumi refused, or took too long.
    """
    init_stack(place, world.engine_bin)
    configure_stack(place, world)


def init_stack(place: Places, engine_bin: str) -> None:
    """Makes an empty stack, whose aws plugin is the double; needs no AWS, so the world may still be starting.

    Raises:
        RayrigError: Pulumi refused, or took too long.
    """
    place.pulumi_state.mkdir(parents=True, exist_ok=True)
    install(place.pulumi_home)
    place.stack_config.unlink(missing_ok=True)
    argv = ["pulumi", "stack", "init", place.stack, "--non-interactive", "--cwd", str(PROJECT)]
    try:
        done = subprocess.run(
            argv,
            env=pulumi_environment(place, engine_bin),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PULUMI_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RayrigError("making the rehearsal's stack took too long", where=place.stack, why=str(error)) from error
    if done.returncode:
        raise RayrigError("cannot make the rehearsal's stack", where=place.stack, why=done.stderr or done.stdout)


def configure_stack(place: Places, world: World) -> None:
    """Writes the stack's configuration beside the salt of its secrets, which Pulumi has put there."""
    made = yaml.safe_load(place.stack_config.read_text(encoding="utf-8")) or {}
    made["config"] = dict(stack_config(world.lab, region=world.region))
    write_private(place.stack_config, yaml.safe_dump(made, sort_keys=False))


def stack_config(lab: Lab | None, *, region: str) -> Mapping[str, object]:
    """What a person would set with `pulumi config set` to run inside this world; ports and times suit small nodes."""
    config: dict[str, object] = {
        "aws:region": region,
        "rayrig:headType": LAB_INSTANCE_TYPE,
        "rayrig:workerType": LAB_INSTANCE_TYPE,
        "rayrig:workers": 2,
        "rayrig:rayHealthCheck": {
            "initialDelayMs": 3000,
            "periodMs": 1000,
            "timeoutMs": 2000,
            "failureThreshold": 3,
        },
    }
    if lab is None:
        return config | {"rayrig:accessCidr": "127.0.0.1/32"}
    return config | {
        "rayrig:accessCidr": f"{lab.user_address}/32",
        "rayrig:vpcCidr": lab.cidr,
        "rayrig:image": lab.image,
    }
