"""Debian file systems from nothing: debootstrap, then apt and pip inside, with the host's own mirror and settings.

Signatures are verified with Debian's keyring. Everything that happens inside the new root happens in a mount
namespace of its own: host files that pip or apt need there (certificates, local wheels) are bound in and never copied.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from contract.errors import RayrigError
from rehearsal.images.commands import run_with_progress

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Where the package debian-archive-keyring puts Debian's keys, on Debian and on Ubuntu."""
_DEBOOTSTRAP_SECONDS = 600.0
_INSIDE_SECONDS = 900.0
_PASSED_ON = (
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
)  # fmt: skip
_APART = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
)  # fmt: skip
"""Mounts and processes of their own: whatever way we end, neither outlives us."""
_INSIDE = Path(__file__).parent / "recipes" / "inside.sh"


@dataclass(frozen=True, kw_only=True)
class Builder:
    """How this host makes a Debian root.

    Attributes:
        say: takes one progress line.
        log: file that all output is appended to.
        mirror: base address of the Debian mirror in the host's own apt sources; None lets debootstrap choose.
        stop: set to end what runs.
    """

    say: Callable[[str], None]
    log: Path
    mirror: str | None
    stop: threading.Event = field(default_factory=threading.Event)


def prepare_host(*, say: Callable[[str], None], log: Path) -> Builder:
    """Checks that this host can make Debian roots, and installs debootstrap where it is missing.

    Raises:
        RayrigError: not root, or a tool is missing and there is no apt to install it; the command is named.
    """
    if os.geteuid() != 0:
        raise RayrigError(
            "Building the lab's images needs root",
            why="debootstrap, chroot and unshare make device files and mounts",
            next_step="run `sudo -E .venv/bin/python -m rehearsal.images` once; later runs find what it built",
        )
    missing = [name for name in ("debootstrap", "unshare", "setpriv", "chroot", "tar") if shutil.which(name) is None]
    packages = {
        "debootstrap": "debootstrap",
        "unshare": "util-linux",
        "setpriv": "util-linux",
        "chroot": "coreutils",
        "tar": "tar",
    }
    wanted = [packages[name] for name in missing] + ([] if KEYRING.exists() else ["debian-archive-keyring"])
    if wanted:
        command = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
        if shutil.which("apt-get") is None:
            raise RayrigError(
                "The lab's images can't be built on this host",
                why=f"missing: {', '.join(wanted)}, and there is no apt-get here to install them",
                next_step="use a Debian or Ubuntu host, or install those packages by this host's own means",
            )
        say(f"installing on this host: {' '.join(wanted)}")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for argv in (["apt-get", "update"], command):
            run_with_progress(
                argv,
                label=" ".join(argv),
                say=say,
                log=log,
                timeout_seconds=300,
                stop=threading.Event(),
                environment=quiet,
            )
    return Builder(say=say, log=log, mirror=_host_mirror())


def _host_mirror() -> str | None:
    """The Debian mirror of the host's own apt sources, or None on a host that is not Debian."""
    if shutil.which("apt-get") is None:
        return None
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    if release.get("ID", "").strip('"') != "debian":
        return None
    codename = release.get("VERSION_CODENAME", "").strip('"')
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    for line in listing.stdout.splitlines():
        match line.split():
            case [uri, suite, "main"] if suite in {codename, "stable"} and uri.startswith(("http://", "https://")):
                return uri
    return None


def make_root(builder: Builder, target: Path, *, suite: str, label: str) -> None:
    """Makes a minimal Debian system of a suite in an empty folder, signatures verified.

    Raises:
        RayrigError: debootstrap failed.
    """
    mirror = [builder.mirror] if builder.mirror else []
    argv = [*_APART, "debootstrap", "--variant=minbase", f"--keyring={KEYRING}", "--force-check-gpg",
            "--include=ca-certificates", suite, str(target), *mirror]  # fmt: skip
    run_with_progress(
        argv,
        label=f"{label}: debootstrap {suite}",
        say=builder.say,
        log=builder.log,
        timeout_seconds=_DEBOOTSTRAP_SECONDS,
        stop=builder.stop,
        # The root is rebuilt whole if the machine dies, so waiting for the disk after each package buys nothing.
        environment={**os.environ, "DPKG_FORCE": "unsafe-io"},
    )


def run_inside(
    builder: Builder, root: Path, script: str, *, label: str, environment: Mapping[str, str] | None = None
) -> None:
    """Runs a shell script as root inside a new root, with /proc, /dev, and the host's name resolution.

    Args:
        builder: from prepare_host.
        root: the new root.
        script: text for `sh -eu`.
        label: what it does, for progress and errors.
        environment: added to the few variables that are passed on (proxies, certificates). A word of a value
            that is an absolute path on the host is bound in read-only and the value changed to where it lies inside.

    Raises:
        RayrigError: the script failed.
    """
    wanted = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | dict(environment or {})
    binds: dict[str, str] = {}
    passed = {name: _bind_paths(value, binds) for name, value in wanted.items()}
    inner = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "DPKG_FORCE": "unsafe-io",
        **passed,
    }
    pairs = [part for pair in binds.items() for part in pair]
    with tempfile.NamedTemporaryFile("w", suffix=".sh", dir=root.parent) as handle:
        handle.write(script)
        handle.flush()
        run_with_progress(
            [*_APART, "sh", "-eu", str(_INSIDE), str(root), handle.name, *pairs],
            label=label,
            say=builder.say,
            log=builder.log,
            timeout_seconds=_INSIDE_SECONDS,
            stop=builder.stop,
            environment=inner,
        )


def _bind_paths(value: str, binds: dict[str, str]) -> str:
    """Replaces the host paths among a value's words by their places inside, which are added to the binds."""
    words = []
    for word in value.split(" "):
        if word.startswith("/") and Path(word).exists():
            inside = binds.setdefault(str(Path(word).resolve()), f"/run/rayrig-host/{len(binds)}")
            words.append(inside)
        else:
            words.append(word)
    return " ".join(words)
