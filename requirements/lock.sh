#!/bin/sh
# Remakes the hash-locked requirement files from pyproject.toml; no index address enters them.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
compile() { "$uv" pip compile -q --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-annotate --no-header "$@" pyproject.toml; }
compile --extra train --extra dev -o requirements/all.lock
compile --extra dev -c requirements/all.lock -o requirements/dev.lock
compile -c requirements/all.lock -o requirements/base.lock
