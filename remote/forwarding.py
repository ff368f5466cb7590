"""A local port that leads to a port of the node: many connections at once, refusals passed on, no hang.

Fabric's own forwarder stops for good after one refused channel and yields before it listens (tried on 3.2.3).
"""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import paramiko

from contract.errors import RayrigError

ACCEPT_POLL_SECONDS = 0.2
CHUNK_BYTES = 65536

OpenChannel = Callable[[], paramiko.Channel]


@contextmanager
def forward(open_channel: OpenChannel, *, name: str) -> Iterator[int]:
    """Listens on a free loopback port and joins each connection to a new channel.

    Args:
        open_channel: opens one channel within a deadline; raises RayrigError when it cannot.
        name: for thread names.

    Yields:
        The local port; it already listens.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    stop = threading.Event()
    acceptor = threading.Thread(
        target=_accept, args=(listener, open_channel, stop, name), name=f"forward-{name}", daemon=True
    )
    acceptor.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        acceptor.join(timeout=5)
        listener.close()


def _accept(listener: socket.socket, open_channel: OpenChannel, stop: threading.Event, name: str) -> None:
    """Accepts until told to stop; each connection gets its own threads, so none can hold up another."""
    served: set[socket.socket] = set()
    while not stop.is_set():
        ready, _, _ = select.select([listener], [], [], ACCEPT_POLL_SECONDS)
        if not ready:
            continue
        client, _address = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        served = {s for s in served if s.fileno() != -1} | {client}
        threading.Thread(target=_serve, args=(client, open_channel), name=f"tunnel-{name}", daemon=True).start()
    for client in served:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def _serve(client: socket.socket, open_channel: OpenChannel) -> None:
    try:
        channel = open_channel()
    except RayrigError:
        # The caller sees a closed connection, as it would on the node itself.
        client.close()
        return
    upward = threading.Thread(target=_pump_up, args=(client, channel), daemon=True)
    upward.start()
    _pump_down(channel, client)
    channel.close()
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
    upward.join(timeout=5)
    client.close()


def _pump_up(client: socket.socket, channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := client.recv(CHUNK_BYTES):
            channel.sendall(data)
        channel.shutdown_write()


def _pump_down(channel: paramiko.Channel, client: socket.socket) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := channel.recv(CHUNK_BYTES):
            client.sendall(data)
