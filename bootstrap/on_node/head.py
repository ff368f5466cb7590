"""Waits until Ray's head answers on GCS and, if asked, on its dashboard, with the token on file.

Argument: {"container", "address", "gcs_port", "dashboard_port", "need_dashboard", "token_path", "wait_seconds"}.
"""

import http.client
import json
import socket
import subprocess
import sys
import time
import typing
from pathlib import Path

from bootstrap.on_node.docker_socket import docker_get

POLL_SECONDS = 0.1
HTTP_OK = 200
LOG_LINES = 25
ENDED = ("exited", "dead", "absent", "created")
GIVE_UP_RESTARTS = 2


def dashboard_status(port: int, authorization: "str | None") -> int:
    """Status of the Jobs API's version call; 0 when nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/api/version", headers={"Authorization": authorization} if authorization else {})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def listens(address: str, port: int) -> bool:
    """Whether a TCP connection succeeds."""
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def container_state(name: str) -> "dict[str, typing.Any]":
    """Whether the container runs and how often it was restarted."""
    status, data = docker_get(f"/containers/{name}/json")
    if status != HTTP_OK:
        return {"status": "absent", "restarts": 0, "exit_code": None}
    return {
        "status": data["State"]["Status"],
        "restarts": data["RestartCount"],
        "exit_code": data["State"]["ExitCode"],
    }


def log_tail(name: str) -> "list[str]":
    """The container's last lines."""
    done = subprocess.run(
        ["docker", "logs", "--tail", str(LOG_LINES), name], capture_output=True, text=True, timeout=20, check=False
    )
    return (done.stdout + done.stderr).strip().splitlines()[-LOG_LINES:]


def main() -> None:
    """Polls until both answer, the container failed, or the wait is over."""
    asked = json.loads(sys.argv[1])
    bearer = "Bearer " + Path(asked["token_path"]).read_text(encoding="utf-8").strip()
    end = time.monotonic() + asked["wait_seconds"]
    first_restarts = container_state(asked["container"])["restarts"]
    seen: dict[str, typing.Any] = {"gcs": False, "dashboard": 0}
    while True:
        if not seen["gcs"] and listens(asked["address"], asked["gcs_port"]):
            seen["gcs"] = True
        if seen["gcs"] and asked["need_dashboard"]:
            seen["dashboard"] = dashboard_status(asked["dashboard_port"], bearer)
        state = container_state(asked["container"])
        # One restart may be under way while we look: the supervisor heals a head whose GCS died.
        failed = state["status"] in ENDED or state["restarts"] >= first_restarts + GIVE_UP_RESTARTS
        ready = seen["gcs"] and (seen["dashboard"] == HTTP_OK or not asked["need_dashboard"])
        if ready or failed or time.monotonic() >= end:
            break
        time.sleep(POLL_SECONDS)
    tail = [] if ready else log_tail(asked["container"])
    print(json.dumps({**seen, "ready": ready, "failed": failed, "container": state, "log_tail": tail}))


if __name__ == "__main__":
    main()
