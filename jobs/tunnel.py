"""The way to a cluster's Jobs API: SSH to the head, a forward to its loopback, the token read over the same link."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from contract.errors import ConfigError, UnreachableError
from contract.inventory import Inventory
from contract.names import TOKEN_PATH
from remote import CommandError, Connection, Target, connect

TOKEN_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """Where Ray's dashboard answers for now, and the token it wants."""

    url: str
    token: str = field(repr=False)


def head_target(inventory: Inventory) -> Target:
    """The head as an SSH target; raises ConfigError while its host key is unknown."""
    head = inventory.head
    if head.host_key is None:
        raise ConfigError("the head's host key is not known yet", where=head.name, next_step="pulumi up")
    return Target(name=head.name, host=head.address, host_key=head.host_key, user=inventory.access.user)


def read_token(connection: Connection) -> str:
    """Reads the Ray token on the head; raises UnreachableError when it is not there."""
    try:
        answer = connection.run(["cat", TOKEN_PATH], sudo=True, timeout_seconds=TOKEN_SECONDS)
    except CommandError as error:
        raise UnreachableError(
            "cannot read the Ray token", where=error.where, why=error.stderr, next_step="pulumi up"
        ) from error
    return answer.stdout.strip()


@contextmanager
def open_dashboard(inventory: Inventory) -> Iterator[Dashboard]:
    """Opens a tunnel to the dashboard, closed at the end; raises UnreachableError when the head does not let us in."""
    with connect(head_target(inventory)) as connection:
        token = read_token(connection)
        with connection.forward(inventory.ports.dashboard) as port:
            yield Dashboard(url=f"http://127.0.0.1:{port}", token=token)
