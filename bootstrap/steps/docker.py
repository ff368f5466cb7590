"""Step docker: an engine that answers; installed from the machine's own package source where it is missing."""

import time

from bootstrap.facts import NodeFacts, read_facts
from bootstrap.progress import NodeLog, step_error
from remote import CommandError, Connection

STEP = "docker"
ANSWER_SECONDS = 60.0
APT_LOCK_SECONDS = 300
APT_SECONDS = 600.0
APT_IDLE_SECONDS = APT_LOCK_SECONDS + 60.0
APT_OPTIONS = (f"--option=DPkg::Lock::Timeout={APT_LOCK_SECONDS}", "--option=Acquire::Retries=3")
"""A lock held by somebody else is waited for; dpkg is never killed."""

_PATIENT_APT = """
end=$(($(date +%s) + $1))
shift
said=$(mktemp)
trap 'rm -f "$said"' EXIT
until "$@" 2>"$said"; do
  if ! grep -q 'Could not get lock' "$said" || [ "$(date +%s)" -ge "$end" ]; then
    cat "$said" >&2
    exit 100
  fi
  sleep 1
done
"""
"""Apt's option covers dpkg's locks alone: those on the lists and on the archives, which the first boot's own update
holds, fail at once (tried: apt 2.6)."""

_WAIT_FOR_ENGINE = """
end=$(($(date +%s) + $1))
until docker version --format '{{.Server.Version}}' 2>/tmp/rayrig-docker.err; do
  if [ "$(date +%s)" -ge "$end" ]; then
    cat /tmp/rayrig-docker.err >&2
    systemctl status docker --no-pager >&2
    exit 1
  fi
  sleep 0.2
done
"""


def plan(facts: NodeFacts) -> list[list[str]]:
    """The commands that bring Docker up; none when it answers."""
    if facts.docker.running:
        return []
    start = ["systemctl", "enable", "--now", "docker"]
    if facts.docker.installed:
        return [start]
    return [apt_get("update"), apt_get("install", "--yes", "--no-install-recommends", "docker.io"), start]


def apt_get(*arguments: str) -> list[str]:
    """The command that runs apt-get without questions, and waits up to APT_LOCK_SECONDS for whoever holds its locks."""
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "apt-get", *APT_OPTIONS, *arguments]
    return ["sh", "-c", _PATIENT_APT, "patient-apt", str(APT_LOCK_SECONDS), *apt]


def ensure_docker(connection: Connection, log: NodeLog, facts: NodeFacts, *, image: str) -> NodeFacts:
    """Makes sure that Docker runs.

    Returns:
        The facts, read again when something was changed.

    Raises:
        StepError: it cannot be installed or does not answer.
    """
    started = time.monotonic()
    commands = plan(facts)
    if not commands:
        log.add(STEP, changed=False, why=f"Docker {facts.docker.version} runs", started=started)
        return facts
    try:
        for argv in commands:
            log.say(STEP, " ".join(argv[-3:]))
            connection.run(argv, sudo=True, timeout_seconds=APT_SECONDS, idle_seconds=APT_IDLE_SECONDS)
        connection.run(
            ["sh", "-c", _WAIT_FOR_ENGINE, "wait", f"{ANSWER_SECONDS:.0f}"],
            sudo=True,
            timeout_seconds=ANSWER_SECONDS + 20,
        )
    except CommandError as error:
        raise step_error(
            log.node,
            STEP,
            "Docker could not be brought up",
            why=f"{error.what}: {error.why}",
            next_step="sudo systemctl status docker; sudo journalctl --unit docker, on the node",
        ) from error
    after = read_facts(connection, image=image)
    if not after.docker.running:
        raise step_error(
            log.node, STEP, "Docker does not answer", why=None, next_step="sudo systemctl status docker, on the node"
        )
    log.add(STEP, changed=True, why=f"Docker {after.docker.version} brought up", started=started)
    return after
