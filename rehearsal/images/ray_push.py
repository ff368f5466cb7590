"""The Ray image as a registry sees it: its base once per content, and a thin layer with the project's own code."""

import gzip
import io
import json
import platform
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from contract.errors import RayrigError
from contract.names import CONTAINER_UID
from rehearsal.images.oci import CONFIG, LAYER, LAYER_GZIP, Blob, Repository, sha256
from rehearsal.images.ray import CODE_DIR, IMAGE_CONFIG
from rehearsal.images.registry import REPOSITORY

BASE_TAG = "base"
APP_TAG = "app"
PACKAGES = ("contract", "images", "jobs")
"""The project's packages that run on the cluster."""
PROJECT = Path(__file__).parents[2]
_CHUNK_BYTES = 1 << 20
_NOTICE_SECONDS = 5.0
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def push_base(root: Path, registry: str, *, say: Callable[[str], None]) -> tuple[str, str]:
    """Pushes a file system as the one layer of the base image, uncompressed: nobody waits for gzip on one machine.

    Returns:
        The manifest's digest and the image id.

    Raises:
        RayrigError: tar or the registry failed.
    """
    repository = Repository(registry=registry, name=REPOSITORY)
    layer = repository.put_stream(_tar(root, say), LAYER)
    config = repository.put_blob(_config([layer.digest]), CONFIG)
    return repository.put_manifest(BASE_TAG, config, [layer]), config.digest


def _tar(root: Path, say: Callable[[str], None]) -> Iterator[bytes]:
    argv = ["tar", "-C", str(root), "--numeric-owner", "--xattrs", "--sort=name", "-c", "."]
    notice = time.monotonic()
    size = 0
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if process.stdout is None or process.stderr is None:
            raise AssertionError("both are pipes")
        try:
            while chunk := process.stdout.read(_CHUNK_BYTES):
                size += len(chunk)
                if time.monotonic() - notice >= _NOTICE_SECONDS:
                    say(f"Ray image: stored {size >> 20} MiB")
                    notice = time.monotonic()
                yield chunk
            said = process.stderr.read().decode(errors="replace")
        finally:
            if process.poll() is None:
                process.terminate()
    if process.returncode != 0:
        raise RayrigError("Packing the Ray image failed", where=str(root), why=said.strip()[-300:])


def _config(diff_ids: list[str]) -> bytes:
    """An image's configuration; the same bytes for the same layers."""
    machine = platform.machine()
    content = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": IMAGE_CONFIG,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "rayrig rehearsal"} for _ in diff_ids],
    }
    return json.dumps(content, indent=1, sort_keys=True).encode()


def publish_ray_image(
    *, push_registry: str, pull_registry: str, say: Callable[[str], None], project: Path = PROJECT
) -> str:
    """Pushes the Ray image with this checkout's code onto the base that the lab's registry holds.

    The same code and base give the same digest, whichever machine or checkout they come from.

    Args:
        push_registry: HOST:PORT of the registry as this process reaches it.
        pull_registry: HOST:PORT of it as nodes reach it.
        say: takes one progress line.
        project: the checkout whose code goes in.

    Returns:
        PULL_REGISTRY/rayrig@sha256:…

    Raises:
        RayrigError: the registry failed, or does not hold the base.
    """
    repository = Repository(registry=push_registry, name=REPOSITORY)
    base = repository.manifest(BASE_TAG)
    base_layer = Blob(media_type=LAYER, digest=base["layers"][0]["digest"], size_bytes=base["layers"][0]["size"])
    base_config: dict[str, Any] = repository.json_blob(base["config"]["digest"])
    tar = code_layer(project)
    layer = repository.put_blob(gzip.compress(tar, mtime=0), LAYER_GZIP)
    config = repository.put_blob(_config([*base_config["rootfs"]["diff_ids"], sha256(tar)]), CONFIG)
    digest = repository.put_manifest(APP_TAG, config, [base_layer, layer])
    say(f"Ray image with this checkout's code: {layer.size_bytes >> 10} KiB on its base, {digest[:19]}")
    return f"{pull_registry}/{REPOSITORY}@{digest}"


def code_layer(project: Path) -> bytes:
    """The project's packages as a tar: sorted, without times, owned by the image's user, without bytecode."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for package in PACKAGES:
            root = project / package
            for path in [root, *sorted(root.rglob("*"))]:
                if "__pycache__" in path.parts or not (path.is_dir() or path.is_file()):
                    continue
                entry = tarfile.TarInfo(f"{CODE_DIR.lstrip('/')}/{path.relative_to(project).as_posix()}")
                entry.uid = entry.gid = CONTAINER_UID
                if path.is_dir():
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
                else:
                    content = path.read_bytes()
                    entry.size, entry.mode = len(content), 0o644
                    tar.addfile(entry, io.BytesIO(content))
    return sink.getvalue()
