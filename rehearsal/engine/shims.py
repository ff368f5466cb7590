"""The scripts that a Pulumi CLI built from Go modules lacks: language host, program executor, dynamic provider."""

import os
import shlex
import sys
import tempfile
from pathlib import Path

HOST = "language_host.py"
HOST_SHIM = "pulumi-language-python"
SDK_SCRIPTS = ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python")
"""Paths in the Go module github.com/pulumi/pulumi/sdk/v3."""

# The cache outlives clones, so the interpreter is looked for where the engine runs (the project's folder) first.
SHIM_TEXT = """#!/bin/sh
# Starts rayrig's Python language host with the project's own Python, else with the one that installed it.
trap "" INT
host=$(dirname "$0")/{host}
folder=$PWD
while [ -n "$folder" ] && [ "$folder" != / ] && [ "$folder" != . ]; do
    for grpc in "$folder"/.venv/lib/python3*/site-packages/grpc; do
        if [ -d "$grpc" ] && [ -x "$folder/.venv/bin/python" ]; then
            exec "$folder/.venv/bin/python" -u "$host" "$@"
        fi
    done
    folder=$(dirname "$folder")
done
python={python}
if [ ! -x "$python" ]; then
    echo "no Python for the language host: $python is gone; run make setup in the project" >&2
    exit 1
fi
exec "$python" -u "$host" "$@"
"""


def install_sdk_scripts(sdk_folder: Path, bin_folder: Path) -> None:
    """Copies the scripts that the Go module of the SDK ships."""
    for script in SDK_SCRIPTS:
        source = sdk_folder / script
        write_executable(bin_folder / source.name, source.read_text(encoding="utf-8"))


def install_language_host(bin_folder: Path) -> None:
    """Puts this checkout's language host beside the CLI; called on every use, so that a cached CLI gets the newest."""
    source = Path(__file__).parent / HOST
    write_executable(bin_folder / HOST, source.read_text(encoding="utf-8"))
    write_executable(bin_folder / HOST_SHIM, SHIM_TEXT.format(host=HOST, python=shlex.quote(sys.executable)))


def write_executable(path: Path, text: str) -> None:
    """Writes a script, replacing an older one at once; untouched where nothing changes."""
    if path.exists() and path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK):
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    temporary = Path(name)
    temporary.chmod(0o755)
    temporary.replace(path)
