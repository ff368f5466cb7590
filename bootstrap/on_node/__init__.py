"""Programs that run on nodes: standard library only, sent over SSH on standard input, one JSON line back.

Each module is a whole program; what they share (`docker_socket`) is put in front of it.
"""

import json
from collections.abc import Callable
from importlib import resources

from contract.errors import StepError
from remote import Connection

SHARED_IMPORT = "from bootstrap.on_node"


def program(name: str) -> str:
    """The source of one program as a node runs it."""
    files = resources.files(__package__)
    shared = files.joinpath("docker_socket.py").read_text(encoding="utf-8")
    own = files.joinpath(f"{name}.py").read_text(encoding="utf-8")
    if SHARED_IMPORT not in own:
        return own
    lines = [line for line in own.splitlines(keepends=True) if not line.startswith(SHARED_IMPORT)]
    return shared + "\n" + "".join(lines)


def run_program(
    connection: Connection,
    name: str,
    *,
    timeout_seconds: float,
    on_output: Callable[[str], None] | None = None,
    **arguments: object,
) -> dict[str, object]:
    """Runs a program as root on the node.

    Args:
        connection: the node.
        name: the module's name.
        timeout_seconds: bound on the whole run.
        on_output: receives standard output as it arrives.
        arguments: passed as one JSON argument; nothing secret.

    Returns:
        The JSON object on the last line of its output.

    Raises:
        CommandError, CommandTimeoutError, ConnectionLostError, ChannelError: as `Connection.run`.
        StepError: its last line is not a JSON object.
    """
    result = connection.run(
        ["python3", "-", json.dumps(arguments)],
        sudo=True,
        stdin=program(name),
        timeout_seconds=timeout_seconds,
        on_output=on_output,
    )
    lines = result.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        answer = None
    if not isinstance(answer, dict):
        raise StepError(
            f"the node's {name} program gave no answer",
            where=connection.target.where,
            why=(result.stderr or result.stdout).strip()[-500:] or "It wrote nothing",
            next_step="run it by hand over SSH: the program is bootstrap/on_node/" + name + ".py",
        )
    return answer
