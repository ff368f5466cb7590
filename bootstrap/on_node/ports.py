"""Proves ports by connecting: from this node to its peers, and from them to some ports of its worker range.

Argument: {"listen": [port], "peers": int, "connect": [[ip, port]], "wait_seconds"}. A refused port is tried again (what
listens there may still start); silence twice means that a rule drops the packets.
"""

import json
import select
import socket
import sys
import threading
import time

CONNECT_SECONDS = 2.0
RETRY_SECONDS = 0.2
SILENCES = 2
GRACE_SECONDS = 5.0


def probe(address: str, port: int, end: float) -> "str | None":
    """None when the port answers, else `refused`, `silent` or the system's own words."""
    silences = 0
    while True:
        try:
            sock = socket.create_connection((address, port), timeout=CONNECT_SECONDS)
        except TimeoutError:
            outcome = "silent"
            silences += 1
        except ConnectionRefusedError:
            outcome = "refused"
        except OSError as error:
            outcome = str(error)
        else:
            sock.close()
            return None
        if silences >= SILENCES or time.monotonic() >= end:
            return outcome
        time.sleep(RETRY_SECONDS)


def serve(listeners: "list[socket.socket]", peers: int, done: threading.Event, end: float) -> None:
    """Accepts until every peer has come to every port, or none can be expected any more."""
    finished = False
    came: dict[int, set[str]] = {listener.fileno(): set() for listener in listeners}
    last = end
    while time.monotonic() < last:
        if done.is_set():
            # All nodes start probing at about the same time: who has not come soon after our own probes will not.
            last = min(last, time.monotonic() + GRACE_SECONDS)
            done.clear()
            finished = True
        if finished and all(len(seen) >= peers for seen in came.values()):
            return
        ready, _, _ = select.select(listeners, [], [], 0.1)
        for listener in ready:
            peer, address = listener.accept()
            came[listener.fileno()].add(address[0])
            peer.close()


def open_listeners(ports: "list[int]") -> "list[socket.socket]":
    """Listens on the given ports, skipping those in use: what uses them listens too."""
    opened = []
    for port in ports:
        try:
            opened.append(socket.create_server(("0.0.0.0", port)))  # noqa: S104 - peers must reach it
        except OSError:
            continue
    return opened


def main() -> None:
    """Listens, probes, and answers with what failed."""
    asked = json.loads(sys.argv[1])
    end = time.monotonic() + asked["wait_seconds"]
    listeners = open_listeners(asked["listen"])
    done = threading.Event()
    server = threading.Thread(target=serve, args=(listeners, asked["peers"], done, end), daemon=True)
    server.start()
    outcomes: dict[str, str | None] = {}

    def run(address: str, port: int) -> None:
        outcomes[f"{address}:{port}"] = probe(address, port, end)

    threads = [threading.Thread(target=run, args=(a, p), daemon=True) for a, p in asked["connect"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    server.join()
    for listener in listeners:
        listener.close()
    print(json.dumps({"failed": {k: v for k, v in sorted(outcomes.items()) if v}, "tried": len(outcomes)}))


if __name__ == "__main__":
    main()
