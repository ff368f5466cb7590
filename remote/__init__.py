"""SSH to nodes: one pinned host key, a deadline on everything, commands, files and port forwards."""

from remote.connection import CommandResult, Connection, connect, connect_until
from remote.dialing import Deadlines, Target
from remote.errors import (
    AuthenticationError,
    BannerError,
    ChannelError,
    CommandError,
    CommandTimeoutError,
    ConnectionLostError,
    HostKeyError,
    TcpError,
)

__all__ = [
    "AuthenticationError",
    "BannerError",
    "ChannelError",
    "CommandError",
    "CommandResult",
    "CommandTimeoutError",
    "Connection",
    "ConnectionLostError",
    "Deadlines",
    "HostKeyError",
    "Target",
    "TcpError",
    "connect",
    "connect_until",
]
