"""The lab's cache: what is expensive to build, kept per user and found by content."""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from contract.errors import RayrigError

LOCK_DEADLINE_SECONDS = 1800.0
"""Longest wait for another process that builds the same images (a build from nothing is under 600 s)."""
_LOCK_NOTICE_SECONDS = 10.0
_LOCK_POLL_SECONDS = 0.2


def cache_dir() -> Path:
    """The user's cache folder for rayrig: `$XDG_CACHE_HOME/rayrig`, else `~/.cache/rayrig`; made if missing."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    folder = root / "rayrig"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def images_dir() -> Path:
    """Where the lab's images, prepared Docker root and the nodes' clones of it lie: one file system, for hard links."""
    folder = cache_dir() / "lab"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def nodes_dir(world_id: str) -> Path:
    """Where the Docker roots of one world's nodes belong.

    In the cache, not in the checkout: the clones are hard links into the prepared root, so both must be on
    one file system.
    """
    return images_dir() / "nodes" / world_id


KEY_PATTERN = re.compile(r"[0-9a-f]{12}")


def content_key(parts: Iterable[tuple[str, bytes]]) -> str:
    """Twelve hex digits that change when any of the named parts does."""
    digest = hashlib.sha256()
    for name, content in sorted(parts):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def tree_parts(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every file under a folder as (relative name with its executable bit, content), bytecode left out."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            executable = "x" if os.access(path, os.X_OK) else "-"
            yield f"{path.relative_to(root).as_posix()} {executable}", path.read_bytes()


@contextmanager
def exclusive(name: str, *, say: Callable[[str], None]) -> Iterator[None]:
    """Holds a lock among this user's processes while the block runs; the kernel frees it if we die.

    Raises:
        RayrigError: another process held it for longer than LOCK_DEADLINE_SECONDS.
    """
    path = images_dir() / f"{name}.lock"
    with path.open("a") as handle:
        start = notice = time.monotonic()
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                now = time.monotonic()
                if now - start > LOCK_DEADLINE_SECONDS:
                    raise RayrigError(
                        "Another process has been building the lab's images for too long",
                        where=str(path),
                        why=f"its lock was still held after {LOCK_DEADLINE_SECONDS:.0f} s",
                        next_step=f"see who holds it with `fuser -v {path}`, end that process, and start again",
                    ) from error
                if now >= notice:
                    say(f"waiting for another process that builds the lab's images ({now - start:.0f} s)")
                    notice = now + _LOCK_NOTICE_SECONDS
                time.sleep(_LOCK_POLL_SECONDS)
        yield
