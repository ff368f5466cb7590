"""Step image: the wanted image, by digest, on the node; and the versions inside it.

The pull is a unit of its own on the node: a cut link does not stop it, and a second run joins it. It times out by lack
of progress, not by size.
"""

import json
import time
from typing import Any

from bootstrap.facts import NodeFacts, image_paths
from bootstrap.on_node import program, run_program
from bootstrap.progress import NodeLog, step_error
from contract.errors import StepError
from remote import CommandError, Connection

STEP = "image"
STALL_SECONDS = 60.0
LOOK_SECONDS = 1.0
RUN_DIRECTORY = "/run/rayrig"
NEXT_STEPS = {
    "unknown": "check the digest: pulumi config get rayrig:image; docker buildx imagetools inspect IMAGE",
    "disk": "give the nodes a larger root volume",
    "rate": "use a mirror in your own account; a registry that limits pulls cannot serve a cluster",
    "denied": "give the nodes' role permission to pull, or docker login on them",
    "plain-http": "serve the registry over TLS, or list it in insecure-registries of /etc/docker/daemon.json",
    "unreachable": "check the registry's address, the route and the egress rules",
    "digest": "the registry serves another content under this digest: rebuild or choose another image",
}
WHATS = {
    "unknown": "the registry does not have this image",
    "disk": "the disk is full",
    "rate": "the registry limits pulls",
    "denied": "the registry refuses access",
    "plain-http": "the registry does not speak TLS",
    "unreachable": "the registry cannot be reached",
    "digest": "the digest does not match",
}

_START_PULL = """
set -eu
install -d -m 0755 "$1"
cat > "$1/pull.py"
systemctl is-active --quiet "$2" && exit 0
rm -f "$3"
systemctl reset-failed "$2" 2>/dev/null || true
exec systemd-run --quiet --collect --unit="$2" python3 "$1/pull.py" "$4"
"""


def ensure_image(
    connection: Connection, log: NodeLog, facts: NodeFacts, *, image: str, stall_seconds: float = STALL_SECONDS
) -> dict[str, str]:
    """Makes sure that the image is there.

    Returns:
        The versions inside the image: python, ray, torch, …

    Raises:
        StepError: named by cause (wrong digest, unreachable registry, full disk, …) within seconds, or no progress
            for `stall_seconds`.
    """
    started = time.monotonic()
    if facts.image.present and facts.image.versions:
        log.add(STEP, changed=False, why="image present", started=started)
        return facts.image.versions
    if not facts.image.present:
        _pull(connection, log, image, stall_seconds)
    versions = _versions_inside(connection, log, image)
    did = "image present" if facts.image.present else "image pulled by digest"
    log.add(STEP, changed=True, why=f"{did}, holds Ray {versions.get('ray', 'of no version')}", started=started)
    return versions


def _pull(connection: Connection, log: NodeLog, image: str, stall_seconds: float) -> None:
    paths = image_paths(image)
    argument = json.dumps({"image": image, "state_path": paths.pull_state})
    connection.run(
        ["sh", "-c", _START_PULL, "start-pull", RUN_DIRECTORY, paths.pull_unit, paths.pull_state, argument],
        sudo=True,
        stdin=program("pull"),
        timeout_seconds=30,
    )
    moved = time.monotonic()
    seen: tuple[object, ...] = ()
    while True:
        state = run_program(
            connection, "follow", timeout_seconds=20, state_path=paths.pull_state, wait_seconds=LOOK_SECONDS
        )
        if state.get("error"):
            raise _pull_error(log.node, image, str(state.get("kind")), str(state["error"]))
        if state["finished"]:
            return
        mark = tuple(state.get(key) for key in ("bytes", "unpacked_bytes", "layers", "layers_done"))
        if mark != seen:
            seen, moved = mark, time.monotonic()
            log.say(STEP, _progress_text(state))
        elif time.monotonic() - moved > stall_seconds:
            raise step_error(
                log.node,
                STEP,
                f"the pull made no progress for {stall_seconds:g} s",
                why=f"{_progress_text(state)}; the next run joins the pull if it still goes on, else begins it anew",
                next_step="check the registry and the node's network, then pulumi up",
            )


def _progress_text(state: dict[str, Any]) -> str:
    total = int(state.get("total_bytes") or 0)
    done = int(state.get("bytes") or 0)
    layers = f"{state.get('layers_done', 0)} of {state.get('layers', 0)} layers"
    if not total:
        return f"pulling, {layers}"
    size = f"{total / 2**20:.0f} MiB"
    if done < total:
        return f"pulling, {done / 2**20:.0f} of {size} ({100 * done // total} %), {layers}"
    unpacked = int(state.get("unpacked_bytes") or 0)
    return f"unpacking, {unpacked / 2**20:.0f} of {size} ({100 * unpacked // total} %), {layers}"


def _pull_error(node: str, image: str, kind: str, words: str) -> StepError:
    return step_error(
        node,
        STEP,
        f"{WHATS.get(kind, 'the pull failed')} ({image})",
        why=words,
        next_step=NEXT_STEPS.get(kind, "sudo journalctl --unit docker, on the node"),
    )


def _versions_inside(connection: Connection, log: NodeLog, image: str) -> dict[str, str]:
    try:
        result = connection.run(
            ["docker", "run", "--rm", "--interactive", "--network=none", "--entrypoint=python", image, "-"],
            sudo=True,
            stdin=program("versions"),
            timeout_seconds=120,
        )
        versions = json.loads(result.stdout.strip().splitlines()[-1])
    except CommandError as error:
        raise step_error(
            log.node,
            STEP,
            "the image does not run",
            why=f"{error.what}: {error.why}",
            next_step="the image must hold `python` with Ray: choose an image that rayrig built",
        ) from error
    found = {str(name): str(version) for name, version in versions.items()}
    connection.put_text(json.dumps(found), image_paths(image).versions, mode="0644", owner="root:root")
    return found
