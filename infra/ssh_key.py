"""The person's public SSH key: which one the nodes let in."""

import base64
import binascii
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from contract.errors import ConfigError

KEY_VARIABLE = "RAYRIG_SSH_KEY"
"""Path of the private key; its public half lies beside it, with `.pub`."""
ACCEPTED = ("ssh-ed25519", "ssh-rsa")
"""What EC2 imports as a key pair (ECDSA and hardware-backed keys are refused)."""
AGENT_SECONDS = 5
MAKE_ONE = "ssh-keygen -t ed25519"


def public_key(environment: Mapping[str, str] | None = None, *, home: Path | None = None) -> str:
    """Finds the key: RAYRIG_SSH_KEY's, else the agent's first, else ~/.ssh/id_*.pub.

    Args:
        environment: the process's by default.
        home: the person's home folder by default.

    Returns:
        `TYPE BASE64`, without the comment, which often tells a name.

    Raises:
        ConfigError: there is none that EC2 accepts, or the named one can't be read.
    """
    env = os.environ if environment is None else environment
    if named := env.get(KEY_VARIABLE):
        return _named(Path(named).expanduser())
    seen: list[str] = []
    for source, line in (*_agent(env), *_files(home or Path.home())):
        key = _parse(line)
        if key:
            return key
        seen.append(source)
    raise ConfigError(
        "no SSH key that EC2 accepts (ed25519 or RSA) in the agent or in ~/.ssh",
        where="SSH key",
        why=f"found and not usable: {', '.join(seen)}" if seen else None,
        next_step=f"{MAKE_ONE} (or set {KEY_VARIABLE} to a private key's path)",
    )


def _named(private: Path) -> str:
    path = private.with_name(f"{private.name}.pub")
    try:
        line = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the public key {path}",
            where=KEY_VARIABLE,
            why=str(error),
            next_step=f"ssh-keygen -y -f {private} > {path}",
        ) from error
    key = _parse(line)
    if key is None:
        raise ConfigError(
            f"{path} is not an ed25519 or RSA public key, the kinds that EC2 accepts",
            where=KEY_VARIABLE,
            next_step=MAKE_ONE,
        )
    return key


def _agent(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The agent's keys; none when there is no agent, or it does not answer."""
    if not env.get("SSH_AUTH_SOCK"):
        return
    try:
        answer = subprocess.run(
            ["ssh-add", "-L"], env=dict(env), capture_output=True, text=True, timeout=AGENT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if answer.returncode == 0:
        yield from (("an agent's key", line) for line in answer.stdout.splitlines())


def _files(home: Path) -> Iterator[tuple[str, str]]:
    """The usual public key files, ed25519 first, the others by name."""
    paths = sorted((home / ".ssh").glob("id_*.pub"), key=lambda path: (path.name != "id_ed25519.pub", path.name))
    for path in paths:
        try:
            yield str(path), path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def _parse(line: str) -> str | None:
    """`TYPE BASE64` when the line is a whole public key of a kind that EC2 accepts."""
    kind, _, rest = line.strip().partition(" ")
    body = rest.split(" ", 1)[0]
    if kind not in ACCEPTED:
        return None
    try:
        blob = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None
    return f"{kind} {body}" if blob[4 : 4 + len(kind)] == kind.encode() else None
