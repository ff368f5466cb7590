"""Pulls an image by digest and keeps a progress file; runs apart from any SSH session, so a cut link stops nothing.

Argument: {"image", "state_path"}. The state file holds
{"finished", "error", "kind", "layers", "layers_done", "bytes", "total_bytes", "unpacked_bytes",
"updated"}.
"""

import http.client
import json
import socket
import sys
import time
import typing
import urllib.parse
from pathlib import Path

from bootstrap.on_node.docker_socket import DockerSocket, docker_get

WRITE_SECONDS = 0.2
DIAL_SECONDS = 5
HTTP_OK = 200
SILENCE_SECONDS = 600
"""The follower notices a stalled pull long before; this only ends a forgotten one."""
KINDS = (
    ("manifest unknown", "unknown"),
    ("manifest for", "unknown"),
    ("not found", "unknown"),
    ("name unknown", "unknown"),
    ("no space left", "disk"),
    ("toomanyrequests", "rate"),
    ("too many requests", "rate"),
    ("unauthorized", "denied"),
    ("denied", "denied"),
    ("no basic auth", "denied"),
    ("http: server gave HTTP response to HTTPS client".lower(), "plain-http"),
    ("connection refused", "unreachable"),
    ("no such host", "unreachable"),
    ("i/o timeout", "unreachable"),
    ("no route to host", "unreachable"),
    ("network is unreachable", "unreachable"),
    ("timeout exceeded", "unreachable"),
    ("request canceled", "unreachable"),
)


def kind_of(error: str) -> str:
    """Sorts the engine's words by what a person must do about them."""
    lower = error.lower()
    return next((kind for words, kind in KINDS if words in lower), "other")


def registry_of(image: str) -> "tuple[str, int] | None":
    """Host and port of the image's registry; None for the engine's default registry."""
    first = image.split("/", 1)[0]
    if "/" not in image or not ("." in first or ":" in first or first == "localhost"):
        return None
    host, _, port = first.partition(":")
    return host, int(port or 443)


class State:
    """Progress of the pull, written to a file that a follower reads."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.done: dict[str, typing.Any] = {"finished": False, "error": None, "kind": None}
        self.layers: dict[str, tuple[int, int, bool]] = {}
        self.unpacked: dict[str, int] = {}
        self.written = 0.0

    def see(self, event: "dict[str, typing.Any]") -> None:
        """Takes one line of the engine's stream in."""
        layer, status = event.get("id"), event.get("status", "")
        if not layer or status.startswith(("Pulling from", "Digest", "Status")):
            return
        detail = event.get("progressDetail") or {}
        _, total, _ = self.layers.get(layer, (0, 0, False))
        if status == "Downloading":
            self.layers[layer] = (detail.get("current", 0), detail.get("total", total), False)
        elif status in {"Download complete", "Extracting", "Verifying Checksum"}:
            self.layers[layer] = (total, total, False)
            # A layer of gigabytes unpacks for minutes after its download: that is progress too.
            if status == "Extracting":
                self.unpacked[layer] = detail.get("current", 0)
        elif status in {"Pull complete", "Already exists"}:
            self.layers[layer] = (total, total, True)
        else:
            self.layers.setdefault(layer, (0, 0, False))

    def write(self, **done: object) -> None:
        """Writes the file, atomically; at most every 0.2 s unless something is done."""
        self.done.update(done)
        now = time.monotonic()
        if not done and now - self.written < WRITE_SECONDS:
            return
        self.written = now
        values = self.layers.values()
        document = {
            **self.done,
            "layers": len(self.layers),
            "layers_done": sum(finished for _, _, finished in values),
            "bytes": sum(current for current, _, _ in values),
            "total_bytes": sum(total for _, total, _ in values),
            "unpacked_bytes": sum(self.unpacked.values()),
            "updated": time.time(),
        }
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(self.path)


def unreachable(image: str) -> "str | None":
    """Why the registry cannot be reached, or None; the engine itself would retry for a minute first."""
    registry = registry_of(image)
    _, info = docker_get("/info")
    if registry is None or (info or {}).get("HttpProxy") or (info or {}).get("HttpsProxy"):
        return None
    try:
        socket.create_connection(registry, timeout=DIAL_SECONDS).close()
    except OSError as error:
        return f"{registry[0]}:{registry[1]}: {error}"
    return None


def pull(image: str, state: State) -> None:
    """Pulls and follows the engine's stream to its end."""
    repository, _, digest = image.rpartition("@")
    query = urllib.parse.urlencode({"fromImage": repository, "tag": digest})
    connection = DockerSocket("localhost", timeout=SILENCE_SECONDS)
    connection.request("POST", f"/images/create?{query}")
    answer = connection.getresponse()
    if answer.status != HTTP_OK:
        message = json.loads(answer.read() or b"{}").get("message", f"HTTP {answer.status}")
        state.write(finished=True, error=message, kind=kind_of(message))
        return
    for line in answer:
        if not line.strip():
            continue
        event = json.loads(line)
        if "error" in event:
            state.write(finished=True, error=event["error"], kind=kind_of(event["error"]))
            return
        state.see(event)
        state.write()
    status, data = docker_get(f"/images/{image}/json")
    if status != HTTP_OK or image not in (data.get("RepoDigests") or []):
        state.write(finished=True, error=f"the engine does not show {digest} after the pull", kind="digest")
        return
    state.write(finished=True)


def main() -> None:
    """Pulls; every outcome lands in the state file."""
    asked = json.loads(sys.argv[1])
    state = State(asked["state_path"])
    state.write(finished=False)
    if (reason := unreachable(asked["image"])) is not None:
        state.write(finished=True, error=reason, kind="unreachable")
        return
    try:
        pull(asked["image"], state)
    except (OSError, http.client.HTTPException, ValueError) as error:
        state.write(finished=True, error=f"{type(error).__name__}: {error}", kind="engine")


if __name__ == "__main__":
    main()
