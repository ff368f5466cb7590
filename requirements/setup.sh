#!/usr/bin/env bash
# Makes .venv from a hash-locked file: setup.sh dev | all. What is there already costs no time and no network.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=${1:?which lock: dev or all}
venv=.venv

say() { printf '%s\n' "$*" >&2; }
fail() { say "set-up: $*"; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer found (looked at PYTHON, python3 and python3.11 to 3.14 on PATH). Next: install one" \
        "(Debian, Ubuntu: apt-get install python3 python3-venv) or name it: make setup PYTHON=/path/to/python3"
}

# A stamp names what was installed: the lock, the project's metadata, and where the project lies.
stamp_of() { { cat "requirements/$1.lock" pyproject.toml requirements/setup.sh; pwd; } | sha256sum | cut -c1-64; }

is_current() { [ -f "$venv/rayrig-$1" ] && [ "$(cat "$venv/rayrig-$1")" = "$(stamp_of "$1")" ]; }

# One set-up at a time in a checkout: two would remove each other's files.
if command -v flock >/dev/null; then
    exec 9<requirements/setup.sh
    flock -w 1800 9 || fail "another set-up has held this checkout for half an hour"
fi

if [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python"; then
    # `all` holds everything of `dev`, at the same versions.
    if is_current "$wanted" || is_current all; then exit 0; fi
else
    python=$(find_python)
    say "set-up: making $venv with $python"
    rm -rf "$venv"
    "$python" -m venv "$venv" || {
        rm -rf "$venv"
        fail "$python cannot make a virtual environment. Next (Debian, Ubuntu): apt-get install python3-venv"
    }
fi

python=$venv/bin/python
lock=requirements/$wanted.lock
pip=("$python" -m pip install --disable-pip-version-check --no-input)
say "set-up: installing $(grep -c == "$lock") locked packages from $lock (all: about 3 GB the first time; dev: 0.4 GB)"

# uv, itself locked, installs from its cache by hard links: seconds in a second clone. pip does the same, slower.
# Compiled once, here: every pulumi command starts a dozen Pythons, twice as fast so, also where none may write.
uv_lock=$(mktemp)
trap 'rm -f "$uv_lock"' EXIT
awk '/^uv==/ { found = 1 } found { print } found && !/\\$/ { exit }' "$lock" >"$uv_lock"
if "${pip[@]}" --quiet --no-deps --require-hashes -r "$uv_lock" &&
    UV_HTTP_TIMEOUT=60 "$venv/bin/uv" pip install --system-certs --compile-bytecode --python "$python" --require-hashes -r "$lock" >&2; then
    :
else
    say "set-up: uv could not do it; trying plain pip"
    "${pip[@]}" --require-hashes -r "$lock" >&2
fi
"${pip[@]}" --quiet --no-deps --no-build-isolation --editable . >&2
"$python" -m pip check --disable-pip-version-check >&2 || say "set-up: pip finds the packages at odds (above); going on"
stamp_of "$wanted" >"$venv/rayrig-$wanted"
say "set-up: $venv is ready ($wanted)"
