"""What can go wrong on the way to a node, told apart by the layer that failed."""

from contract.errors import RayrigError, UnreachableError


class TcpError(UnreachableError):
    """No TCP connection: refused, unrouted, or silence."""


class BannerError(UnreachableError):
    """TCP is open but no SSH server greets within its deadline."""


class HostKeyError(UnreachableError):
    """The server's host key is not the pinned one; never retried."""


class AuthenticationError(UnreachableError):
    """The server is the right one but accepts none of our keys."""


class ConnectionLostError(UnreachableError):
    """An established connection died: node gone, rebooted or cut off."""


class ChannelError(UnreachableError):
    """The connection lives but the node did not open a channel (session or forward)."""


class CommandTimeoutError(UnreachableError):
    """A command gave no result within its total or idle deadline."""


class CommandError(RayrigError):
    """A command ran and exited non-zero.

    Attributes:
        status: the command's exit code; -1 when a signal ended it.
        stdout: what it wrote to standard output.
        stderr: what it wrote to standard error.
    """

    def __init__(
        self, what: str, *, where: str, why: str | None, status: int, stdout: str, stderr: str, next_step: str | None
    ) -> None:
        super().__init__(what, where=where, why=why, next_step=next_step)
        self.status = status
        self.stdout = stdout
        self.stderr = stderr
