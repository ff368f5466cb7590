"""Where a world keeps its files, all under one ignored folder."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
"""The checkout: holds Pulumi.yaml."""


DEFAULT_DIRECTORY = PROJECT / ".rayrig" / "rehearsal"


@dataclass(frozen=True, kw_only=True)
class Places:
    """The files of one world; `directory` is `.rayrig/rehearsal` of the checkout unless a test has its own."""

    directory: Path

    @property
    def record(self) -> Path:
        """`world.json`: what others need to know of a world; there exactly while it is up (or died uncleanly)."""
        return self.directory / "world.json"

    @property
    def lock(self) -> Path:
        """Held while a world is being started."""
        return self.directory / "start.lock"

    @property
    def plan(self) -> Path:
        """What `start` decided and the daemon carries out."""
        return self.directory / "plan.json"

    @property
    def pidfile(self) -> Path:
        """The daemon's process id, written before anything is made."""
        return self.directory / "world.pid"

    @property
    def log(self) -> Path:
        """The daemon's log."""
        return self.directory / "world.log"

    @property
    def status(self) -> Path:
        """What the daemon says of its parts and nodes, rewritten when it changes."""
        return self.directory / "status.json"

    @property
    def requests(self) -> Path:
        """Every request that the world's AWS was sent, one JSON line each."""
        return self.directory / "requests.jsonl"

    @property
    def notices(self) -> Path:
        """One file per instance that has a spot notice."""
        return self.directory / "notices"

    @property
    def ssh_key(self) -> Path:
        """The person's private key in this world, its public half beside it."""
        return self.directory / "ssh_key"

    @property
    def passphrase(self) -> Path:
        """Passphrase of the stack's secrets."""
        return self.directory / "passphrase"

    @property
    def empty(self) -> Path:
        """An empty file in place of the person's AWS settings."""
        return self.directory / "empty"

    @property
    def pulumi_home(self) -> Path:
        """Pulumi's own folder: plugins, workspaces."""
        return self.directory / "pulumi-home"

    @property
    def pulumi_state(self) -> Path:
        """Pulumi's file backend."""
        return self.directory / "state"

    @property
    def stack(self) -> str:
        """Name of the world's stack: `rehearsal`, or one of its own for a world elsewhere."""
        if self.directory == DEFAULT_DIRECTORY:
            return "rehearsal"
        return f"rehearsal-{hashlib.sha256(str(self.directory).encode()).hexdigest()[:8]}"

    @property
    def stack_config(self) -> Path:
        """The stack's configuration; Pulumi wants it beside Pulumi.yaml."""
        return PROJECT / f"Pulumi.{self.stack}.yaml"


def places(directory: Path | None = None) -> Places:
    """The default world's places, or those of a world kept in `directory`."""
    return Places(directory=(directory or DEFAULT_DIRECTORY).resolve())


def write_private(path: Path, text: str) -> None:
    """Writes a whole file at once, readable by its owner only; a reader sees the old text or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
