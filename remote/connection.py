"""A connection to one node: commands with total and idle deadlines, files, forwards; redials when the link died."""

import select
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import fabric
import paramiko

from contract.errors import UnreachableError
from remote import forwarding
from remote.dialing import Deadlines, Target, dial
from remote.errors import (
    AuthenticationError,
    ChannelError,
    CommandError,
    CommandTimeoutError,
    ConnectionLostError,
    HostKeyError,
)
from remote.keys import Login, find_login

PROBE_SECONDS = 0.2
"""Pause between two attempts of `connect_until`."""
AUTH_PROBE_SECONDS = 1.0
"""Pause after a refused key: sshd slows down and locks out who hammers."""
CHUNK_BYTES = 65536
REMOTE_GRACE_SECONDS = 2
"""A command ends itself on the node this long after our own deadline, so that nothing is left running there."""
TAIL_LINES = 12

_WRITE_FILE = """
set -eu
[ -d "$(dirname "$1")" ] || install -d -m 0755 "$(dirname "$1")"
umask 077
tmp=$(mktemp "$1.XXXXXX")
trap 'rm -f "$tmp"' EXIT
cat > "$tmp"
chown "$3" "$tmp"
chmod "$2" "$tmp"
mv -f "$tmp" "$1"
trap - EXIT
"""


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """What a command did."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0


class Connection:
    """An open connection; safe to use from several threads. Made by `connect` or `connect_until`."""

    def __init__(self, target: Target, *, login: Login, deadlines: Deadlines, opened: fabric.Connection) -> None:
        self.target = target
        self.deadlines = deadlines
        self._login = login
        self._opened: fabric.Connection = opened
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Closes the transport and with it every channel."""
        self._closed = True
        self._opened.close()

    @property
    def alive(self) -> bool:
        """Whether the transport still stands, as far as this side knows."""
        transport = self._opened.transport
        return transport is not None and transport.is_active()

    def _transport(self) -> paramiko.Transport:
        """The live transport; dials again when it died."""
        with self._lock:
            if self._closed:
                raise ConnectionLostError("the connection was closed here", where=self.target.where)
            if not self.alive:
                self._opened.close()
                self._opened = dial(self.target, login=self._login, deadlines=self.deadlines)
            transport: paramiko.Transport = self._opened.transport
            return transport

    def _lost(self, doing: str, error: BaseException | None = None) -> ConnectionLostError:
        return ConnectionLostError(
            f"the connection was lost {doing}",
            where=self.target.where,
            why=(str(error) or type(error).__name__) if error else "The node rebooted, hangs, or the network was cut",
            next_step="look at the instance's state, then run the command again",
        )

    def _open(self, kind: str, destination: tuple[str, int] | None) -> paramiko.Channel:
        what = f"to port {destination[1]}" if destination else "for a command"
        try:
            source = ("127.0.0.1", 0) if destination else None
            return self._transport().open_channel(
                kind, dest_addr=destination, src_addr=source, timeout=self.deadlines.channel_seconds
            )
        except paramiko.ChannelException as error:
            raise ChannelError(
                f"the node refused a channel {what}", where=self.target.where, why=str(error.text)
            ) from error
        except paramiko.SSHException as error:
            if not self.alive:
                raise self._lost(f"while opening a channel {what}", error) from error
            raise ChannelError(
                f"no channel {what} within {self.deadlines.channel_seconds:g} s",
                where=self.target.where,
                why=str(error),
                next_step="the node is overloaded or hangs: look at its state",
            ) from error
        except (OSError, EOFError) as error:
            raise self._lost(f"while opening a channel {what}", error) from error

    def run(
        self,
        argv: Sequence[str],
        *,
        sudo: bool = False,
        stdin: str | None = None,
        timeout_seconds: float,
        idle_seconds: float | None = None,
        check: bool = True,
        on_output: Callable[[str], None] | None = None,
    ) -> CommandResult:
        """Runs one command and waits for it.

        Args:
            argv: the command and its arguments; quoted for the remote shell here.
            sudo: run as root (`sudo -n`).
            stdin: text for its standard input; secrets go this way, never in argv.
            timeout_seconds: bound on the whole command; on the node it is ended two seconds later.
            idle_seconds: bound on silence; None for no such bound.
            check: raise CommandError on a non-zero exit.
            on_output: called with each piece of standard output as it arrives.

        Raises:
            CommandError: it exited non-zero and `check` is set.
            CommandTimeoutError: it was silent or unfinished for too long.
            ConnectionLostError, ChannelError: the way to the node broke.
        """
        bounded = ["timeout", "--kill-after=5", f"{timeout_seconds + REMOTE_GRACE_SECONDS:g}", *argv]
        command = shlex.join(["sudo", "-n", *bounded] if sudo else bounded)
        started = time.monotonic()
        channel = self._open("session", None)
        try:
            return self._follow(
                channel,
                _Request(tuple(argv), command, stdin, timeout_seconds, idle_seconds, check, on_output, started),
            )
        except (EOFError, OSError, paramiko.SSHException) as error:
            raise self._lost(f"during `{_short(argv)}`", error) from error
        finally:
            channel.close()

    def _follow(self, channel: paramiko.Channel, request: "_Request") -> CommandResult:
        channel.settimeout(self.deadlines.channel_seconds)
        channel.exec_command(request.command)
        pending = memoryview((request.stdin or "").encode())
        if not pending:
            channel.shutdown_write()
        out, err = bytearray(), bytearray()
        heard = time.monotonic()
        while True:
            self._check_bounds(request, heard, out, err)
            pending = _feed(channel, pending)
            if _drain(channel, out, err, request.on_output):
                heard = time.monotonic()
                continue
            if channel.exit_status_ready() and not channel.recv_ready() and not channel.recv_stderr_ready():
                break
            if not self.alive:
                raise self._lost(f"during `{_short(request.argv)}`")
            if channel.eof_received:
                # select returns at once after end of file, so wait for the exit status itself.
                channel.status_event.wait(0.05)
            else:
                select.select([channel], [], [], 0.01 if pending else 0.25)
        code = channel.recv_exit_status()
        if code == -1 and not self.alive:
            raise self._lost(f"during `{_short(request.argv)}`")
        result = CommandResult(
            argv=request.argv,
            exit_code=code,
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            seconds=time.monotonic() - request.started,
        )
        if request.check and code != 0:
            raise CommandError(
                f"`{_short(request.argv)}` exited with {code}",
                where=self.target.where,
                why=_tail(result.stderr or result.stdout) or "It wrote nothing",
                status=code,
                stdout=result.stdout,
                stderr=result.stderr,
                next_step=None,
            )
        return result

    def _check_bounds(self, request: "_Request", heard: float, out: bytearray, err: bytearray) -> None:
        now = time.monotonic()
        if now - request.started > request.timeout_seconds:
            raise self._timeout(request, f"not finished after {request.timeout_seconds:g} s", out, err)
        if request.idle_seconds is not None and now - heard > request.idle_seconds:
            raise self._timeout(request, f"silent for {request.idle_seconds:g} s", out, err)

    def _timeout(self, request: "_Request", what: str, out: bytearray, err: bytearray) -> CommandTimeoutError:
        said = _tail((bytes(err) or bytes(out)).decode(errors="replace"))
        return CommandTimeoutError(
            f"`{_short(request.argv)}`: {what}",
            where=self.target.where,
            why=f"Its last words: {said}" if said else "It wrote nothing",
            next_step="look at the node's load and state, then run again",
        )

    def run_script(
        self,
        text: str,
        *,
        interpreter: Sequence[str] = ("sh", "-s"),
        sudo: bool = False,
        timeout_seconds: float,
        idle_seconds: float | None = None,
        check: bool = True,
    ) -> CommandResult:
        """Runs a script given on standard input; `interpreter` is e.g. `("python3", "-")`. Errors as `run`."""
        return self.run(
            interpreter,
            sudo=sudo,
            stdin=text,
            timeout_seconds=timeout_seconds,
            idle_seconds=idle_seconds,
            check=check,
        )

    def put_text(self, text: str, path: str, *, mode: str, owner: str, timeout_seconds: float = 30) -> None:
        """Writes a file as root, atomically; never readable by others before its mode is set.

        Args:
            text: the content; it travels on standard input.
            path: absolute path; a missing folder is made, 0755.
            mode: as chmod takes it, such as `0600`.
            owner: as chown takes it, such as `1000:1000`.
            timeout_seconds: bound on the whole write.
        """
        self.run(
            ["sh", "-c", _WRITE_FILE, "write-file", path, mode, owner],
            sudo=True,
            stdin=text,
            timeout_seconds=timeout_seconds,
        )

    def forward(self, remote_port: int, *, remote_host: str = "127.0.0.1") -> AbstractContextManager[int]:
        """A local port (yielded, already listening) that leads to `remote_host:remote_port` seen from the node.

        Each connection is a channel of its own; a refused one closes only that connection; when the transport
        died, the next connection dials again.
        """
        return forwarding.forward(
            lambda: self._open("direct-tcpip", (remote_host, remote_port)), name=f"{self.target.name}-{remote_port}"
        )


@dataclass(frozen=True)
class _Request:
    argv: tuple[str, ...]
    command: str
    stdin: str | None
    timeout_seconds: float
    idle_seconds: float | None
    check: bool
    on_output: Callable[[str], None] | None
    started: float


def _feed(channel: paramiko.Channel, pending: memoryview) -> memoryview:
    """Sends what the window takes of standard input; closes it after the last byte."""
    if not pending:
        return pending
    if channel.closed or channel.exit_status_ready():
        return pending[len(pending) :]
    if channel.send_ready():
        pending = pending[channel.send(bytes(pending[:CHUNK_BYTES])) :]
        if not pending:
            channel.shutdown_write()
    return pending


def _drain(channel: paramiko.Channel, out: bytearray, err: bytearray, on_output: Callable[[str], None] | None) -> bool:
    """Reads what is there; returns whether anything was."""
    got = False
    if channel.recv_ready():
        data = channel.recv(CHUNK_BYTES)
        out += data
        got = bool(data)
        if data and on_output:
            on_output(data.decode(errors="replace"))
    if channel.recv_stderr_ready():
        data = channel.recv_stderr(CHUNK_BYTES)
        err += data
        got = got or bool(data)
    return got


def _short(argv: Sequence[str]) -> str:
    """The command for a message: first line, at most 80 characters; a script's name instead of its text."""
    if tuple(argv[:2]) == ("sh", "-c") and len(argv) > 3:  # noqa: PLR2004 - sh -c SCRIPT NAME arguments
        argv = argv[3:]
    line = shlex.join(argv).splitlines()[0]
    return line if len(line) <= 80 else f"{line[:77]}…"  # noqa: PLR2004 - told in the docstring


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-TAIL_LINES:])


@contextmanager
def connect(target: Target, *, deadlines: Deadlines | None = None, login: Login | None = None) -> Iterator[Connection]:
    """Connects once and closes at the end.

    Args:
        target: the machine and its pinned key.
        deadlines: bounds per layer.
        login: the key to use; by default what `remote.keys.find_login` finds.

    Raises:
        TcpError, BannerError, HostKeyError, AuthenticationError: by the layer that failed.
        ConfigError: our key cannot be used.
    """
    bounds = deadlines or Deadlines()
    chosen = login or find_login()
    connection = Connection(target, login=chosen, deadlines=bounds, opened=dial(target, login=chosen, deadlines=bounds))
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def connect_until(
    target: Target,
    *,
    timeout_seconds: float,
    deadlines: Deadlines | None = None,
    login: Login | None = None,
    on_wait: Callable[[UnreachableError], None] | None = None,
) -> Iterator[Connection]:
    """Connects to a machine that may still be booting: tries every 0.2 s until the deadline.

    Args:
        target: the machine and its pinned key.
        timeout_seconds: how long to try in all.
        deadlines: bounds per layer and attempt; TCP defaults to 2 s here, so that a boot is noticed soon.
        login: the key to use.
        on_wait: called after each failed attempt whose kind differs from the one before.

    Raises:
        TcpError, BannerError, AuthenticationError: the last attempt's failure, once the deadline has passed.
        HostKeyError: at once.
    """
    bounds = deadlines or Deadlines(tcp_seconds=2)
    chosen = login or find_login()
    end = time.monotonic() + timeout_seconds
    last: UnreachableError | None = None
    while True:
        try:
            opened = dial(target, login=chosen, deadlines=bounds)
            break
        except HostKeyError:
            raise
        except UnreachableError as error:
            if on_wait and type(error) is not type(last):
                on_wait(error)
            last = error
            if time.monotonic() >= end:
                error.what = f"{error.what}, tried for {timeout_seconds:g} s"
                raise
        pause = AUTH_PROBE_SECONDS if isinstance(last, AuthenticationError) else PROBE_SECONDS
        time.sleep(max(0.0, min(pause, end - time.monotonic())))
    connection = Connection(target, login=chosen, deadlines=bounds, opened=opened)
    try:
        yield connection
    finally:
        connection.close()
