"""Opens one SSH connection step by step: TCP, banner, host key, authentication; each with its own deadline."""

import socket
import time
from dataclasses import dataclass

import fabric
import paramiko

from contract.errors import ConfigError
from remote.errors import AuthenticationError, BannerError, HostKeyError, TcpError
from remote.keys import Login

BANNER_POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Target:
    """One machine to reach.

    Attributes:
        name: the node's name, for messages.
        host: address to dial.
        host_key: the only key accepted, `ssh-ed25519 AAAA…`.
        user: login name.
        port: SSH port.
    """

    name: str
    host: str
    host_key: str
    user: str
    port: int = 22

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self.name} ({self.host})"


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Bounds on each layer, in seconds.

    `dead_seconds` is how long a silent peer is believed: data that nobody acknowledges for that long ends the
    connection (TCP_USER_TIMEOUT), and a keepalive every `keepalive_seconds` makes sure that there is such data.
    """

    tcp_seconds: float = 5
    banner_seconds: float = 5
    auth_seconds: float = 10
    channel_seconds: float = 10
    keepalive_seconds: int = 5
    dead_seconds: float = 15


def dial(target: Target, *, login: Login, deadlines: Deadlines) -> fabric.Connection:
    """Connects and authenticates.

    Raises:
        TcpError: nothing accepts the TCP connection.
        BannerError: what listens there does not speak SSH in time.
        HostKeyError: the server's key is not `target.host_key`.
        AuthenticationError: none of our keys is accepted.
        ConfigError: `target.host_key` is not a public key.
    """
    sock = _open_tcp(target, deadlines)
    try:
        _await_banner(sock, target, deadlines)
        return _handshake(sock, target, login, deadlines)
    except BaseException:
        sock.close()
        raise


def _open_tcp(target: Target, deadlines: Deadlines) -> socket.socket:
    try:
        sock = socket.create_connection((target.host, target.port), timeout=deadlines.tcp_seconds)
    except TimeoutError as error:
        raise TcpError(
            f"no answer on TCP port {target.port} within {deadlines.tcp_seconds:g} s",
            where=target.where,
            why="The machine is down, the subnet has no route to the internet gateway, "
            "or the security group does not let this machine's address in",
            next_step="compare accessCidr with your public address, then look at the instance's state and system log",
        ) from error
    except ConnectionRefusedError as error:
        raise TcpError(
            f"TCP port {target.port} is closed",
            where=target.where,
            why="The machine answers but no SSH server listens there (it may still be booting)",
            next_step="look at the instance's system log when this lasts",
        ) from error
    except OSError as error:
        raise TcpError(
            f"cannot reach TCP port {target.port}",
            where=target.where,
            why=str(error),
            next_step="check the address, the route and the security group",
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Only Linux has it; elsewhere the command deadlines alone bound a dead peer.
    if (user_timeout := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:
        sock.setsockopt(socket.IPPROTO_TCP, user_timeout, int(deadlines.dead_seconds * 1000))
    return sock


def _await_banner(sock: socket.socket, target: Target, deadlines: Deadlines) -> None:
    """Peeks until the server's greeting is there, so that paramiko still reads it."""
    end = time.monotonic() + deadlines.banner_seconds
    why = "The port is open but silent: the SSH server hangs, or something else listens there"
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            seen = sock.recv(4096, socket.MSG_PEEK)
        except TimeoutError:
            break
        except OSError as error:
            why = f"The connection was closed before any greeting ({error})"
            break
        if not seen:
            why = "The connection was closed before any greeting (too many connections, or sshd is starting)"
            break
        if b"SSH-" in seen:
            return
        why = f"What listens there is not an SSH server; it says {seen[:40]!r}"
        time.sleep(BANNER_POLL_SECONDS)
    raise BannerError(
        f"no SSH greeting within {deadlines.banner_seconds:g} s",
        where=target.where,
        why=why,
        next_step="look at the instance's system log; a machine out of memory or still booting answers so",
    )


def _handshake(sock: socket.socket, target: Target, login: Login, deadlines: Deadlines) -> fabric.Connection:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    kind, key = _parse_host_key(target)
    label = target.host if target.port == paramiko.config.SSH_PORT else f"[{target.host}]:{target.port}"
    client.get_host_keys().add(label, kind, key)
    connection = fabric.Connection(
        target.host,
        user=target.user,
        port=target.port,
        # The person's ssh_config must not redirect a connection that the inventory describes completely.
        config=fabric.Config(overrides={"load_ssh_configs": False}),
        connect_timeout=deadlines.auth_seconds,
        connect_kwargs={
            "sock": sock,
            "pkey": login.key,
            "allow_agent": login.allow_agent,
            "look_for_keys": login.look_for_keys,
            "banner_timeout": deadlines.banner_seconds,
            "auth_timeout": deadlines.auth_seconds,
            "channel_timeout": deadlines.channel_seconds,
        },
    )
    # Fabric's own client adds unknown host keys silently.
    connection.client = client
    try:
        connection.open()
    except paramiko.BadHostKeyException as error:
        raise _host_key_error(target, f"It shows {error.key.get_name()} {error.key.fingerprint}") from error
    except paramiko.AuthenticationException as error:
        raise _authentication_error(target, str(error)) from error
    except paramiko.SSHException as error:
        raise _ssh_error(target, error) from error
    except (OSError, EOFError) as error:
        raise BannerError(
            "the connection broke in the SSH handshake",
            where=target.where,
            why=str(error) or type(error).__name__,
            next_step="try again; look at the instance's system log when this lasts",
        ) from error
    connection.transport.set_keepalive(deadlines.keepalive_seconds)
    return connection


def _parse_host_key(target: Target) -> tuple[str, paramiko.PKey]:
    kind, _, rest = target.host_key.partition(" ")
    try:
        entry = paramiko.hostkeys.HostKeyEntry.from_line(f"host {kind} {rest.split()[0]}")
    except (IndexError, paramiko.SSHException, ValueError):
        entry = None
    if entry is None or entry.key is None:
        raise ConfigError(
            "the recorded SSH host key is not a public key", where=target.where, why=f"It reads {target.host_key!r}"
        )
    return kind, entry.key


def _host_key_error(target: Target, why: str) -> HostKeyError:
    return HostKeyError(
        "the SSH host key is not the one this node published",
        where=target.where,
        why=f"{why}; another machine answers at this address, or the node's keys were made anew",
        next_step="check that the address still belongs to the instance; do not connect by hand meanwhile",
    )


def _authentication_error(target: Target, why: str) -> AuthenticationError:
    return AuthenticationError(
        f"SSH refused every key for user {target.user}",
        where=target.where,
        why=why,
        next_step="use the key that the cluster was made with (RAYRIG_SSH_KEY, the agent, ~/.ssh), or run pulumi up",
    )


def _ssh_error(target: Target, error: paramiko.SSHException) -> HostKeyError | AuthenticationError | BannerError:
    text = str(error)
    if "known_hosts" in text:
        return _host_key_error(target, "It offers no host key of the published kind")
    if "No authentication methods" in text or "No existing session" in text:
        return _authentication_error(target, "There is no SSH key here: make one with ssh-keygen -t ed25519")
    return BannerError("the SSH handshake failed", where=target.where, why=text, next_step="try again")
