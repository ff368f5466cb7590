#!/bin/sh
# Remakes lab-image.lock: the versions of all.lock (run lock.sh first), but for what Debian's torch 2.6 pins.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
grep -E '^[a-z0-9][^ ]*==' requirements/all.lock | grep -vE '^(sympy|torch)==' | sed 's/ \\$//' >"$constraints"
"$uv" pip compile -q --python-version 3.13 --python-platform x86_64-unknown-linux-gnu --generate-hashes --no-emit-index-url \
    --no-annotate --no-header -c "$constraints" requirements/lab-image.in -o requirements/lab-image.lock
