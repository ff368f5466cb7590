"""A real SSH server on loopback, made of paramiko: runs commands, opens forwards, and misbehaves when told to."""

import contextlib
import io
import os
import select
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SUDO = '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n'


def new_key() -> paramiko.PKey:
    """A throw-away Ed25519 key."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return paramiko.Ed25519Key.from_private_key(io.StringIO(pem.decode()))


@dataclass
class SshServer:
    """Listens until closed; `host_key` and `user_key` are made anew for each test session."""

    folder: Path
    host_key: paramiko.PKey
    user_key: paramiko.PKey
    banner_delay_seconds: float = 0
    silent: bool = False
    """Accept TCP and say nothing."""
    refuse_sessions: bool = False
    hold_channels: threading.Event = field(default_factory=threading.Event)
    """While set, channel opens are not answered."""
    transports: list[paramiko.Transport] = field(default_factory=list)
    port: int = 0

    def start(self) -> "SshServer":
        bin_folder = self.folder / "bin"
        bin_folder.mkdir(exist_ok=True)
        (bin_folder / "sudo").write_text(SUDO)
        (bin_folder / "sudo").chmod(0o755)
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=32)
        self.port = self._listener.getsockname()[1]
        self._stop = threading.Event()
        self._raw: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """Ends every established connection, as a reboot does."""
        for transport in self.transports:
            transport.close()
        for sock in self._raw:
            sock.close()

    def _accept(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._listener], [], [], 0.05)
            if ready:
                sock, _ = self._listener.accept()
                self._raw.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        if self.silent or self._stop.wait(self.banner_delay_seconds):
            return
        transport = paramiko.Transport(sock)
        transport.add_server_key(self.host_key)
        self.transports.append(transport)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(server=_Policy(self))


class _Policy(paramiko.ServerInterface):
    def __init__(self, server: SshServer) -> None:
        self.server = server

    def check_auth_publickey(self, username, key):
        same = username == "ubuntu" and key == self.server.user_key
        return paramiko.AUTH_SUCCESSFUL if same else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username):  # noqa: ARG002
        return "publickey"

    def check_channel_request(self, kind, chanid):  # noqa: ARG002
        if self.server.hold_channels.is_set():
            threading.Event().wait(3)
        refused = self.server.refuse_sessions
        return paramiko.OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED if refused else paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        threading.Thread(target=self._execute, args=(channel, command.decode()), daemon=True).start()
        return True

    def check_channel_direct_tcpip_request(self, chanid, origin, destination):  # noqa: ARG002
        try:
            sock = socket.create_connection(destination, timeout=2)
        except OSError:
            return paramiko.OPEN_FAILED_CONNECT_FAILED
        threading.Thread(target=self._join, args=(chanid, sock), daemon=True).start()
        return paramiko.OPEN_SUCCEEDED

    def _execute(self, channel: paramiko.Channel, command: str) -> None:
        env = {**os.environ, "PATH": f"{self.server.folder / 'bin'}:{os.environ['PATH']}"}
        process = subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        pumps = [
            threading.Thread(target=_copy, args=(process.stdout, channel.sendall), daemon=True),
            threading.Thread(target=_copy, args=(process.stderr, channel.sendall_stderr), daemon=True),
        ]
        threading.Thread(target=_feed, args=(channel, process.stdin), daemon=True).start()
        for pump in pumps:
            pump.start()
        code = process.wait()
        for pump in pumps:
            pump.join()
        with contextlib.suppress(OSError, EOFError):
            channel.send_exit_status(code)
            channel.close()

    def _join(self, chanid: int, sock: socket.socket) -> None:
        # Transport.accept hands out channels of every kind in order of arrival; ours is known by its number.
        channels = self.server.transports[-1]._channels
        end = time.monotonic() + 5
        while (channel := channels.get(chanid)) is None and time.monotonic() < end:
            time.sleep(0.005)
        threading.Thread(target=_pump, args=(sock.recv, channel.sendall, channel.shutdown_write), daemon=True).start()
        _pump(channel.recv, sock.sendall, lambda: sock.shutdown(socket.SHUT_WR))


def _pump(receive, send, finish) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := receive(65536):
            send(data)
        finish()


def _copy(stream, send) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := stream.read1(65536):
            send(data)


def _feed(channel: paramiko.Channel, stdin) -> None:
    with contextlib.suppress(OSError, EOFError):
        while data := channel.recv(65536):
            stdin.write(data)
            stdin.flush()
        stdin.close()
