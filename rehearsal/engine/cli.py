"""The Pulumi CLI: on PATH, by the official installer, or built with Go; the last two cached for every clone."""

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from contract.errors import RayrigError
from rehearsal.engine.go_build import build_cli, build_key, go_version_needed, version_tuple
from rehearsal.engine.shims import HOST_SHIM, install_language_host
from rehearsal.engine.shown_command import CommandFailedError, Say, answer_of, run_shown, say_on_stderr

VERSION = "3.274.1"
"""What is installed where no usable CLI is found."""
OLDEST_VERSION = "3.272.0"
"""The oldest CLI that is used as found: that of the Python SDK the project pins; older ones were not tried."""
PROBE_TIMEOUT_SECONDS = 10.0
INSTALL_TIMEOUT_SECONDS = 600.0
LOCK_TIMEOUT_SECONDS = 1800.0

PROBE_SCRIPT = """
import sys, urllib.request
try:
    urllib.request.urlopen("https://get.pulumi.com/install.sh", timeout=5).close()
except OSError as error:
    sys.exit(f"get.pulumi.com cannot be reached ({error})")
"""
INSTALL_SCRIPT = """
import sys
from pulumi.automation import PulumiCommand
from semver import VersionInfo
PulumiCommand.install(root=sys.argv[1], version=VersionInfo.parse(sys.argv[2]))
"""


class EngineUnavailableError(RayrigError):
    """No Pulumi CLI was found, and none could be installed or built."""


def cache_folder() -> Path:
    """Where CLIs are kept: `$XDG_CACHE_HOME/rayrig/pulumi`, shared by all clones of one user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rayrig" / "pulumi"


def ensure_cli(say: Say = say_on_stderr) -> Path:
    """The folder that holds `pulumi` and what it needs to run Python programs; gets one first if need be.

    Takes no time when one is there, else up to some minutes, told line by line through `say`.

    Raises:
        EngineUnavailableError: none of the three ways works; says what each met with.
    """
    cache = cache_folder()
    found, why_not = find_on_path(cache)
    if found is not None:
        return found
    tried = [f"on PATH: {why_not}"]
    try:
        ready = find_cached(cache)
        if ready is None:
            with lock(cache, say):
                ready = find_cached(cache) or install(cache, tried, say)
    except OSError as error:
        ready = None
        tried.append(f"cache {cache}: {error}")
    if ready is not None:
        return ready
    needed = ".".join(str(part) for part in go_version_needed())
    raise EngineUnavailableError(
        "no usable Pulumi CLI",
        why="; ".join(tried),
        next_step=f"install Pulumi {OLDEST_VERSION} or newer (https://www.pulumi.com/docs/install/) or Go {needed} or "
        "newer, put it on PATH, and run this again",
    )


def find_on_path(cache: Path) -> tuple[Path | None, str]:
    """The folder of the CLI on PATH if it is new enough and has its language host; else None and the reason."""
    command = shutil.which("pulumi")
    if command is None:
        return None, "no pulumi"
    real = Path(command).resolve()
    if real.is_relative_to(cache.resolve()):
        return None, f"{command} is this project's own cached one"
    version = cli_version(command)
    if version is None:
        return None, f"{command} does not answer"
    if version_tuple(version) < version_tuple(OLDEST_VERSION):
        return None, f"{command} is {version}, older than {OLDEST_VERSION}"
    if not (real.parent / HOST_SHIM).exists() and shutil.which(HOST_SHIM) is None:
        return None, f"{command} {version} has no {HOST_SHIM} beside it"
    return Path(command).parent, ""


def cli_version(command: str) -> str | None:
    """What `pulumi version` prints, without its `v`; None where it does not run."""
    answer = answer_of([command, "version"], env=dict(os.environ) | {"PULUMI_SKIP_UPDATE_CHECK": "true"})
    return (answer or "").strip().removeprefix("v") or None


def official_folder(cache: Path) -> Path:
    """Where the official installer's CLI is kept."""
    return cache / f"{VERSION}-official"


def built_folder(cache: Path) -> Path:
    """Where the CLI built with Go is kept; another build has another name."""
    return cache / f"{VERSION}-{build_key(VERSION)}"


def find_cached(cache: Path) -> Path | None:
    """The bin folder of a finished CLI in the cache; the built one gets this checkout's language host."""
    if (official_folder(cache) / "bin" / "pulumi").exists():
        return official_folder(cache) / "bin"
    built = built_folder(cache) / "bin"
    if not (built / "pulumi").exists():
        return None
    install_language_host(built)
    return built


def install(cache: Path, tried: list[str], say: Say) -> Path | None:
    """Gets a CLI into the cache, by the official installer, else with Go; its bin folder, None where both failed.

    Adds to `tried` what each way met with. Nothing half done is ever under the final name.

    Raises:
        OSError: the cache cannot be written.
    """
    say(f"no usable Pulumi CLI yet ({tried[0]}); getting {VERSION} into {cache}")
    for unfinished in cache.glob("new-*"):
        shutil.rmtree(unfinished)
    for name, folder, get in (
        ("official installer", official_folder(cache), install_official),
        ("built with Go", built_folder(cache), install_built),
    ):
        with tempfile.TemporaryDirectory(dir=cache, prefix="new-") as temporary:
            fresh = Path(temporary) / folder.name
            (fresh / "bin").mkdir(parents=True)
            try:
                get(fresh, cache, say)
                check_version(fresh / "bin" / "pulumi")
            except CommandFailedError as error:
                say(f"{name}: {error}")
                tried.append(f"{name}: {error}")
                continue
            if folder.exists():
                shutil.rmtree(folder)
            fresh.rename(folder)
        say(f"Pulumi {VERSION} is ready in {folder / 'bin'}")
        return folder / "bin"
    return None


def install_official(fresh: Path, _cache: Path, say: Say) -> None:
    """Runs Pulumi's own installer into `fresh`, after a quick look whether its site can be reached.

    Raises:
        CommandFailedError: the site cannot be reached, or the installer failed.
    """
    probe = [sys.executable, "-c", PROBE_SCRIPT]
    run_shown(probe, label="looking for the installer's site", timeout_seconds=PROBE_TIMEOUT_SECONDS, say=say)
    argv = [sys.executable, "-c", INSTALL_SCRIPT, str(fresh), VERSION]
    run_shown(argv, label="Pulumi's installer (about 200 MB)", timeout_seconds=INSTALL_TIMEOUT_SECONDS, say=say)


def install_built(fresh: Path, cache: Path, say: Say) -> None:
    """Builds the CLI with Go into `fresh`."""
    build_cli(VERSION, fresh / "bin", cache, say)


def check_version(command: Path) -> None:
    """Raises CommandFailedError unless the CLI runs and is the one that was asked for."""
    version = cli_version(str(command))
    if version != VERSION:
        raise CommandFailedError(f"the CLI says it is {version or 'nothing'}, not {VERSION}")


@contextmanager
def lock(cache: Path, say: Say) -> Iterator[None]:
    """Only one process at a time gets a CLI; the others wait and then use it.

    Raises:
        OSError: the cache cannot be written, or the lock is held for longer than LOCK_TIMEOUT_SECONDS.
    """
    cache.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    with (cache / "lock").open("w") as file:
        if not try_lock(file):
            say("another process is getting the Pulumi CLI; waiting for it")
            while not try_lock(file):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{file.name} is still held after {LOCK_TIMEOUT_SECONDS:.0f} s")
                time.sleep(0.5)
        yield


def try_lock(file: IO[str]) -> bool:
    """Whether the lock on an open file could be taken at once."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
