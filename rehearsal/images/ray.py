"""The lab's Ray image: Debian trixie with its CPU torch, and Ray from a hash-locked list, made small."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from contract.names import CONTAINER_UID
from rehearsal.images.rootfs import Builder, make_root, run_inside

RECIPE = Path(__file__).parent / "recipes" / "ray"
REQUIREMENTS = Path(__file__).parents[2] / "requirements" / "lab-image.lock"
SUITE = "trixie"
CODE_DIR = "/opt/rayrig"
"""Where the image holds the project's own packages; the working directory and the import path."""
IMAGE_CONFIG = {
    "Env": [
        "PATH=/opt/ray/bin:/usr/local/bin:/usr/bin:/bin",
        f"PYTHONPATH={CODE_DIR}",
        "HOME=/home/ray",
        "LANG=C.UTF-8",
        "PYTHONUNBUFFERED=1",
    ],
    "WorkingDir": CODE_DIR,
    "User": f"{CONTAINER_UID}:{CONTAINER_UID}",
    "Cmd": ["python"],
}
"""How a container of the image starts unless told otherwise."""


def make_ray_root(builder: Builder, root: Path) -> None:
    """Makes the Ray image's file system in an empty folder; takes pip's index and certificates from this host.

    Raises:
        RayrigError: a step failed.
    """
    make_root(builder, root, suite=SUITE, label="Ray image")
    packages = " ".join((RECIPE / "packages.txt").read_text().split())
    steps: tuple[tuple[str, str, dict[str, str]], ...] = (
        ("Debian's Python and torch", "install.sh", {"PACKAGES": packages}),
        ("Ray and what it needs", "python.sh", {**pip_environment(), "REQUIREMENTS": str(REQUIREMENTS)}),
        ("made small", "finish.sh", {}),
        ("tried", "check.sh", {}),
    )
    for label, script, environment in steps:
        text = (RECIPE / script).read_text()
        run_inside(builder, root, text, label=f"Ray image: {label}", environment=environment)


def pip_environment() -> dict[str, str]:
    """This host's settings of pip as PIP_* variables, for a pip that can't see the host's files.

    They are given by environment, so an index's credentials reach neither a command line nor the image.
    """
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False, timeout=60
    )
    settings: dict[str, str] = {}
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in {"global", "install"}:
            # Lists stand on lines of their own in the file, and in one line with blanks in a variable.
            text = " ".join(str(ast.literal_eval(value)).split())
            settings[f"PIP_{name.upper().replace('-', '_')}"] = text
    # Variables win over files, as for pip itself; the file that one of them may name has just been read.
    given = {name: value for name, value in os.environ.items() if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"}
    return settings | given
