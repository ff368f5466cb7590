"""Runs inside the image: versions that must be equal on all nodes, read without importing torch or Ray (0.2 s)."""

import importlib.metadata
import importlib.util
import json
import platform
import re
from pathlib import Path

PACKAGES = ("ray", "gymnasium", "numpy", "torch")


def torch_versions() -> "dict[str, str]":
    """Torch's own version file: a distribution's torch may carry no package metadata."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {}
    path = Path(next(iter(spec.submodule_search_locations))) / "version.py"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = {}
    for name, key in (("__version__", "torch"), ("cuda", "cuda")):
        match = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if match:
            found[key] = match.group(1)
    return found


def main() -> None:
    """Answers with name → version."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    print(json.dumps({**found, **torch_versions()}))


if __name__ == "__main__":
    main()
