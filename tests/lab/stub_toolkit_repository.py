"""Runs on a node as root: a signed apt source of stub packages in place of NVIDIA's, and a stub nvidia-smi.

Each stub is an empty package but for `nvidia-ctk`, which writes Docker's settings as the real one does.
"""

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from email.utils import formatdate
from pathlib import Path

ROOT = Path("/srv/toolkit")
KEY_NAME = "Lab <lab@lab.invalid>"
CTK = """#!/usr/bin/python3
import json, pathlib, sys
assert sys.argv[1:] == ["runtime", "configure", "--runtime=docker"], sys.argv
path = pathlib.Path("/etc/docker/daemon.json")
settings = json.loads(path.read_text())
settings.setdefault("runtimes", {})["nvidia"] = {"path": "nvidia-container-runtime", "args": []}
path.write_text(json.dumps(settings, indent=1))
"""
SMI = """#!/bin/sh
echo "NVIDIA A10G, 570.133.20"
echo "NVIDIA A10G, 570.133.20"
"""


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def package(name: str, version: str, depends: str) -> None:
    """One stub."""
    tree = ROOT / "build" / f"{name}_{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = {
        "Package": name,
        "Version": version,
        "Architecture": "all",
        "Maintainer": KEY_NAME,
        "Depends": depends,
        "Description": "a stub for tests",
    }
    control = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
    (tree / "DEBIAN" / "control").write_text(control)
    if name == "nvidia-container-toolkit-base":
        tool = tree / "usr" / "bin" / "nvidia-ctk"
        tool.parent.mkdir(parents=True)
        tool.write_text(CTK)
        tool.chmod(0o755)
    pool = ROOT / "pool"
    pool.mkdir(exist_ok=True)
    run("dpkg-deb", "--root-owner-group", "--build", str(tree), str(pool / f"{name}_{version}_all.deb"))


def index() -> str:
    """The Packages file."""
    entries = []
    for path in sorted((ROOT / "pool").glob("*.deb")):
        data = path.read_bytes()
        entries.append(
            run("dpkg-deb", "--field", str(path))
            + f"Filename: pool/{path.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        )
    return "\n".join(entries)


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    for version in sys.argv[1:]:
        package("libnvidia-container1", version, "")
        package("libnvidia-container-tools", version, f"libnvidia-container1 (= {version})")
        package("nvidia-container-toolkit-base", version, "")
        package(
            "nvidia-container-toolkit",
            version,
            f"nvidia-container-toolkit-base (= {version}), libnvidia-container-tools (= {version})",
        )
    folder = ROOT / "dists" / "stable" / "main" / "binary-amd64"
    folder.mkdir(parents=True)
    packages = index().encode()
    (folder / "Packages").write_bytes(packages)
    (folder / "Packages.gz").write_bytes(gzip.compress(packages, mtime=0))
    sums = ""
    for path in sorted(folder.iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        sums += f" {digest} {path.stat().st_size} {path.relative_to(folder.parents[1])}\n"
    release = (
        f"Origin: Lab\nSuite: stable\nCodename: stable\nDate: {formatdate(usegmt=True)}\nArchitectures: amd64 all\n"
        f"Components: main\nSHA256:\n{sums}"
    )
    suite = ROOT / "dists" / "stable"
    (suite / "Release").write_text(release)
    run("gpg", "--batch", "--passphrase", "", "--quick-gen-key", KEY_NAME, "ed25519", "sign", "0")
    run("gpg", "--batch", "--yes", "--clearsign", "--output", str(suite / "InRelease"), str(suite / "Release"))
    smi = Path("/usr/local/bin/nvidia-smi")
    smi.write_text(SMI)
    smi.chmod(0o755)
    key = run("gpg", "--batch", "--armor", "--export", KEY_NAME)
    print(json.dumps({"key": key, "line": f"file:{ROOT} stable main"}))


main()
