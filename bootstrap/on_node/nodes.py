"""Waits on the head until Ray shows exactly the wanted addresses alive.

Argument: {"expected": {ip: earliest start in ms}, "gone": [ip], "dashboard_port", "token_path", "wait_seconds"}.
Each address must be alive once, and started no earlier than its container: for some seconds Ray still lists a killed
node as alive, beside the new one or in its place.
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


def settled(nodes: "list[dict[str, typing.Any]]", expected: "dict[str, float]", gone: "list[str]") -> bool:
    """Each expected address alive exactly once and not a ghost, and none of the gone ones."""
    starts: dict[str, list[float]] = {}
    for node in nodes:
        if node["state"] == "ALIVE":
            starts.setdefault(node["node_ip"], []).append(node.get("start_time_ms") or 0)
    once = all(len(starts.get(ip, [])) == 1 and starts[ip][0] >= earliest for ip, earliest in expected.items())
    return once and not any(ip in starts for ip in gone)


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
