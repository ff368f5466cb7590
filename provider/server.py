"""Serves the provider to the engine that started it, and ends with it."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from provider.operation import Cancellation
from provider.servicer import Servicer

VERSION = "0.1.0"
THREADS = 512
"""One per call under way, made when needed: as many nodes can be prepared at once."""
MAX_MESSAGE_BYTES = 400 * 1024 * 1024
"""What Pulumi's own SDKs set."""
PARENT_LOOK_SECONDS = 1.0
STOP_SECONDS = 3.0


def serve(arguments: list[str]) -> int:
    """Serves until the engine ends the process, or is gone itself.

    Args:
        arguments: the engine's address first, as the engine passes it; none when started by hand.

    Returns:
        The exit code.
    """
    address = next((argument for argument in arguments if not argument.startswith("-")), None)
    parent = os.getppid()  # before the port is told: the engine may be killed right after
    cancellation = Cancellation()
    ended = threading.Event()
    _quiet_signals(ended)
    limits = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(max_workers=THREADS), options=limits)
    servicer = Servicer(engine_address=address, version=VERSION, cancellation=cancellation)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)  # which is how the engine learns it
    _wait_for_the_end(ended, parent)
    cancellation.tell()
    server.stop(grace=STOP_SECONDS).wait()
    return 0


def _quiet_signals(ended: threading.Event) -> None:
    """SIGINT is how the engine ends a plugin (it waits 5 s, then kills); neither signal prints anything.

    A person's Ctrl-C does not arrive here: plugins have a process group of their own, the engine calls Cancel.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())


def _wait_for_the_end(ended: threading.Event, parent: int) -> None:
    """Until told to end, or until the engine that started us is gone (killed, it tells nobody)."""
    while not ended.wait(PARENT_LOOK_SECONDS):
        if os.getppid() != parent:
            return
