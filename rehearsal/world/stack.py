"""The stack of a world: its file backend, and its configuration as the lab wants it."""

import subprocess
from collections.abc import Mapping

import yaml

from contract.errors import RayrigError
from rehearsal.double.plugin import install
from rehearsal.world.environment import process_environment
from rehearsal.world.places import PROJECT, Places, write_private
from rehearsal.world.record import Lab, World

LAB_INSTANCE_TYPE = "m7i.large"
PULUMI_SECONDS = 60


def make_stack(place: Places, world: World) -> None:
    """Makes an empty stack, whose aws plugin is the double, and writes its configuration.

    Raises:
        RayrigError: Pulumi refused.
    """
    place.pulumi_state.mkdir(parents=True, exist_ok=True)
    install(place.pulumi_home)
    config = place.stack_config
    config.unlink(missing_ok=True)
    argv = ["pulumi", "stack", "init", place.stack, "--non-interactive", "--cwd", str(PROJECT)]
    done = subprocess.run(
        argv,
        env=process_environment(place, world),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PULUMI_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RayrigError("cannot make the rehearsal's stack", where=place.stack, why=done.stderr or done.stdout)
    made = yaml.safe_load(config.read_text(encoding="utf-8")) or {}
    made["config"] = dict(stack_config(world.lab, region=world.region))
    write_private(config, yaml.safe_dump(made, sort_keys=False))


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
