#!/usr/bin/env bash
# Every test, fast ones first; arguments go to pytest. Without Docker the parts that need it are named and left out.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${RAYRIG_FORBID_SKIPS:-}" ] && ! docker info >/dev/null 2>&1; then
    cat >&2 <<'TEXT'
Docker does not answer, so tests/lab (container nodes over real SSH) is left out; `make rehearse` needs it too.
  Install it (Debian, Ubuntu: apt-get install docker.io), start it (systemctl start docker), be root or in its group,
  and see that `docker info` answers.
TEXT
    exec .venv/bin/python -m pytest "$@" tests/unit tests/engine
fi
exec .venv/bin/python -m pytest "$@"
