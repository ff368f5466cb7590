"""Waits on the head until Ray shows exactly the wanted addresses alive.

Argument: {"expected": [ip], "gone": [ip], "dashboard_port", "token_path", "wait_seconds"}. Distinct addresses are
counted: after a quick reboot Ray lists two alive entries for one address for some seconds.
"""

import http.client
import json
import sys
import time
import typing
from pathlib import Path

POLL_SECONDS = 0.2
HTTP_OK = 200
LIMIT = 10_000


def list_nodes(port: int, bearer: str) -> "list[dict[str, typing.Any]] | None":
    """All nodes that GCS knows, dead ones too; None when the dashboard does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(
            "GET", f"/api/v0/nodes?detail=true&limit={LIMIT}", headers={"Authorization": f"Bearer {bearer}"}
        )
        answer = connection.getresponse()
        data = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if answer.status != HTTP_OK or not data.get("result"):
        return None
    return list(data["data"]["result"]["result"])


def settled(nodes: "list[dict[str, typing.Any]]", expected: "list[str]", gone: "list[str]") -> bool:
    """Each expected address alive exactly once, and none of the gone ones."""
    alive = [node["node_ip"] for node in nodes if node["state"] == "ALIVE"]
    return all(alive.count(ip) == 1 for ip in expected) and not any(ip in alive for ip in gone)


def main() -> None:
    """Polls until settled or the wait is over."""
    asked = json.loads(sys.argv[1])
    bearer = Path(asked["token_path"]).read_text(encoding="utf-8").strip()
    end = time.monotonic() + asked["wait_seconds"]
    while True:
        nodes = list_nodes(asked["dashboard_port"], bearer)
        done = nodes is not None and settled(nodes, asked["expected"], asked["gone"])
        if done or time.monotonic() >= end:
            break
        time.sleep(POLL_SECONDS)
    keep = ("node_id", "node_ip", "state", "state_message", "is_head_node", "resources_total", "start_time_ms")
    print(
        json.dumps(
            {
                "settled": done,
                "answered": nodes is not None,
                "clock_ms": time.time() * 1000,
                "nodes": [{key: node.get(key) for key in keep} for node in nodes or []],
            }
        )
    )


if __name__ == "__main__":
    main()
