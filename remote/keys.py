"""Which private key we log in with: RAYRIG_SSH_KEY, else the agent's, else ~/.ssh/id_*."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import paramiko

from contract.errors import ConfigError

KEY_VARIABLE = "RAYRIG_SSH_KEY"


@dataclass(frozen=True, kw_only=True)
class Login:
    """How to authenticate: one key, or whatever the agent and ~/.ssh hold."""

    key: paramiko.PKey | None
    allow_agent: bool
    look_for_keys: bool


def find_login(environ: Mapping[str, str] = os.environ) -> Login:
    """The login that the environment asks for.

    Raises:
        ConfigError: RAYRIG_SSH_KEY names a file that is missing, encrypted or no private key.
    """
    path = environ.get(KEY_VARIABLE)
    if not path:
        return Login(key=None, allow_agent=True, look_for_keys=True)
    return Login(key=read_private_key(Path(path).expanduser()), allow_agent=False, look_for_keys=False)


def read_private_key(path: Path) -> paramiko.PKey:
    """Reads an unencrypted private key; raises ConfigError when it cannot be used."""
    try:
        return paramiko.PKey.from_path(path)
    except FileNotFoundError as error:
        raise ConfigError(
            "the SSH private key does not exist",
            where=str(path),
            next_step=f"set {KEY_VARIABLE} to a private key, or make one: ssh-keygen -t ed25519",
        ) from error
    except OSError as error:
        raise ConfigError("cannot read the SSH private key", where=str(path), why=error.strerror) from error
    except (paramiko.PasswordRequiredException, TypeError) as error:
        raise ConfigError(
            "the SSH private key is encrypted",
            where=str(path),
            next_step=f"ssh-add {path}, and unset {KEY_VARIABLE} so that the agent is asked",
        ) from error
    except (paramiko.SSHException, ValueError) as error:
        raise ConfigError("not an SSH private key", where=str(path), why=str(error)) from error
