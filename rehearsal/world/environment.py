"""The shell of a person inside a world: every AWS setting of their own masked, ours in place."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rehearsal.nodes.instances import LAB_ACCESS_KEY, LAB_SECRET_KEY
from rehearsal.world.places import Places
from rehearsal.world.record import World

MASKED_PREFIXES = ("AWS_", "PULUMI_", "BOTO_")


def settings(place: Places, world: World) -> dict[str, str]:
    """What a world sets, PATH apart."""
    return {
        "AWS_ACCESS_KEY_ID": LAB_ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": LAB_SECRET_KEY,
        "AWS_REGION": world.region,
        "AWS_DEFAULT_REGION": world.region,
        "AWS_ENDPOINT_URL": world.endpoint_url,
        "AWS_CONFIG_FILE": str(place.empty),
        "AWS_SHARED_CREDENTIALS_FILE": str(place.empty),
        "AWS_EC2_METADATA_DISABLED": "true",
        "RAYRIG_SSH_KEY": str(place.ssh_key),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), _past_proxies(world)),
        **pulumi_settings(place),
    }


def _past_proxies(world: World) -> str:
    """The hosts that no proxy is asked for: the person's, and this machine's, where the world's AWS is."""
    theirs = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    ours = (urlsplit(world.endpoint_url).hostname or "", "127.0.0.1", "localhost")
    return ",".join(dict.fromkeys(host.strip() for host in (*theirs.split(","), *ours) if host.strip()))


def daemon_environment() -> dict[str, str]:
    """The environment of a world's daemon: it talks to this machine only, and to no account of the person's."""
    return _unmasked() | {"NO_PROXY": "*", "no_proxy": "*"}


def _unmasked() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(MASKED_PREFIXES)}


def pulumi_settings(place: Places) -> dict[str, str]:
    """Pulumi's part of them: state, plugins and secrets of this world only."""
    return {
        "PULUMI_HOME": str(place.pulumi_home),
        "PULUMI_BACKEND_URL": place.pulumi_state.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(place.passphrase),
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_STACK": place.stack,
    }


def search_path(engine_bin: str, before: str) -> str:
    """PATH with this project's own commands and the engine in front, each once."""
    first = [str(Path(sys.executable).parent), engine_bin]
    rest = [folder for folder in before.split(os.pathsep) if folder and folder not in first]
    return os.pathsep.join([*first, *rest])


def masked(names: Mapping[str, str]) -> list[str]:
    """Settings of the person that must not reach the rehearsal, or they would mean their own account or stack."""
    return sorted(name for name in names if name.startswith(MASKED_PREFIXES))


def process_environment(place: Places, world: World) -> dict[str, str]:
    """The whole environment of a command that runs inside the world."""
    return pulumi_environment(place, world.engine_bin) | settings(place, world)


def pulumi_environment(place: Places, engine_bin: str) -> dict[str, str]:
    """The whole environment of a Pulumi command that calls no AWS."""
    path = search_path(engine_bin, os.environ.get("PATH", os.defpath))
    return _unmasked() | pulumi_settings(place) | {"PATH": path}


def exports(place: Places, world: World) -> str:
    """Shell text for `eval`, safe whatever the paths contain."""
    unset = [name for name in masked(os.environ) if name not in settings(place, world)]
    lines = [f"unset {' '.join(unset)}"] if unset else []
    values = settings(place, world) | {"PATH": search_path(world.engine_bin, os.environ.get("PATH", os.defpath))}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"
