"""The plugin process: serves the engine on a free port of this machine, and says which."""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from rehearsal.double.servicer import Servicer

PARALLEL_REQUESTS = 32
"""Requests worked on at once: each may wait for AWS, none needs a processor meanwhile."""
MESSAGE_BYTES = 400 * 1024 * 1024
"""Largest message, as Pulumi's own SDKs set it."""
ENGINE_LOOK_SECONDS = 1.0
GRACE_SECONDS = 20.0
"""For calls under way to answer, so that the engine learns the id of what they made."""


def main() -> int:
    """Serves until the engine ends it, or is gone itself."""
    ended = threading.Event()
    engine = os.getppid()  # before the port is told: the engine may be killed right after
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]
    server = grpc.server(ThreadPoolExecutor(PARALLEL_REQUESTS), options=options)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(ended.set), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while not ended.wait(ENGINE_LOOK_SECONDS) and os.getppid() == engine:
        pass  # a killed engine tells nobody
    server.stop(GRACE_SECONDS).wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
