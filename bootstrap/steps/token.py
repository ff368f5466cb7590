"""Step token: Ray's token, made once on the head, the same on every node, in a file that only the container reads."""

import hashlib
import time

from bootstrap.facts import TokenFacts
from bootstrap.progress import NodeLog, step_error
from contract.names import CONTAINER_UID, NODE_STATE_DIR, TOKEN_PATH
from remote import Connection

STEP = "token"
TOKEN_BYTES = 32
SECONDS = 30.0

_MAKE = """
set -eu
install -d -m 0755 -o root -g root "$1"
umask 077
if [ ! -s "$2" ]; then
  head -c "$4" /dev/urandom | od -An -v -tx1 | tr -d ' \\n' > "$2.new"
  mv "$2.new" "$2"
fi
chown "$3:$3" "$2"
chmod 0600 "$2"
"""


def fingerprint(token: str) -> str:
    """What may be shown of a token: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(token.strip().encode()).hexdigest()[:16]


def is_safe(token: TokenFacts | None) -> bool:
    """Whether the file is there, readable by the container's user only."""
    return token is not None and token.mode == "0o600" and token.uid == CONTAINER_UID


def ensure_token_on_head(connection: Connection, log: NodeLog, found: TokenFacts | None) -> str:
    """Makes the token where there is none, and puts its mode and owner right.

    Returns:
        The token; it must not be written anywhere but to other nodes' token files.

    Raises:
        StepError: it cannot be read back.
    """
    started = time.monotonic()
    changed = not is_safe(found)
    if changed:
        connection.run(
            ["sh", "-c", _MAKE, "make-token", NODE_STATE_DIR, TOKEN_PATH, str(CONTAINER_UID), str(TOKEN_BYTES)],
            sudo=True,
            timeout_seconds=SECONDS,
        )
    token = read_token(connection)
    if len(token) < TOKEN_BYTES:
        raise step_error(
            log.node,
            STEP,
            "the token file is empty or too short",
            why=f"{TOKEN_PATH} holds {len(token)} characters",
            next_step=f"sudo rm {TOKEN_PATH} on the head, then pulumi up: all nodes get a new one",
        )
    log.add(STEP, changed=changed, why="token made" if changed else "token present", started=started)
    return token


def read_token(connection: Connection) -> str:
    """The token on a node's file; raises CommandError when there is none."""
    return connection.run(["cat", TOKEN_PATH], sudo=True, timeout_seconds=SECONDS).stdout.strip()


def ensure_token_on_worker(connection: Connection, log: NodeLog, found: TokenFacts | None, *, token: str) -> None:
    """Copies the head's token where it is missing or another."""
    started = time.monotonic()
    if is_safe(found) and found is not None and found.fingerprint == fingerprint(token):
        log.add(STEP, changed=False, why="token present", started=started)
        return
    connection.run(["install", "-d", "-m", "0755", NODE_STATE_DIR], sudo=True, timeout_seconds=SECONDS)
    connection.put_text(token, TOKEN_PATH, mode="0600", owner=f"{CONTAINER_UID}:{CONTAINER_UID}")
    log.add(STEP, changed=True, why="token copied from the head", started=started)
