"""Builds what a lab with nodes stands on, each part once per content: node image, Ray image, prepared Docker root.

All of it lies in the user's cache: `node-KEY.tar.gz` (imported again should Docker lose the image),
`registry-KEY/` (the store of the lab's registry, which holds the Ray image's base) and `docker-root-KEY/`.
A part exists whole or not at all: it is made under another name and renamed, its record written last.
"""

import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import docker
from docker.errors import APIError, DockerException, ImageNotFound

from contract.errors import RayrigError
from rehearsal.images import node, ray
from rehearsal.images.cache import KEY_PATTERN, content_key, exclusive, images_dir, tree_parts
from rehearsal.images.commands import run_with_progress
from rehearsal.images.docker_root import docker_root_in_preparation
from rehearsal.images.ray_push import push_base
from rehearsal.images.registry import REPOSITORY, WORLD_LABEL
from rehearsal.images.rootfs import Builder, prepare_host

NODE_REPOSITORY = "rayrig-lab/node"
KEPT_VERSIONS = 2
"""How many versions of each part stay in the cache (about 1.4 GB each for the two big ones): this one and the last."""
_BUILD_CODE = "1"
"""Part of every key: raise it when this package's code, not a recipe, changes what is built."""
_DOCKER_SECONDS = 300
_PACK_SECONDS = 180.0
_NOTICE_SECONDS = 5.0

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class LabImages:
    """What a lab with nodes stands on.

    Attributes:
        node_image: tag of the node image in the host's Docker; its content key is in it.
        prepared_docker_root: to be cloned for every node.
        ray_base_image_id: id of the Ray image's base, which the prepared root and the registry's store hold.
        registry_store: what the lab's registry serves.
    """

    node_image: str
    prepared_docker_root: Path
    ray_base_image_id: str
    registry_store: Path


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """Where each part belongs, by its content."""

    node_image: str
    node_tar: Path
    ray_root: Path
    registry: Path
    docker_root: Path

    @property
    def base_record(self) -> Path:
        """Written last: a registry store without it is half made."""
        return self.registry / "rayrig-base.json"


def _plan() -> _Plan:
    folder = images_dir()
    code = ("code", _BUILD_CODE.encode())
    inside = ("inside.sh", (node.RECIPE.parent / "inside.sh").read_bytes())
    node_key = content_key([code, inside, ("suite", node.SUITE.encode()), *tree_parts(node.RECIPE)])
    config = json.dumps(ray.IMAGE_CONFIG, sort_keys=True).encode()
    lock = ("lock", ray.REQUIREMENTS.read_bytes())
    ray_key = content_key(
        [code, inside, lock, ("suite", ray.SUITE.encode()), ("config", config), *tree_parts(ray.RECIPE)]
    )
    root_key = content_key([code, ("node", node_key.encode()), ("ray", ray_key.encode())])
    return _Plan(
        node_image=f"{NODE_REPOSITORY}:{node_key}",
        node_tar=folder / f"node-{node_key}.tar.gz",
        ray_root=folder / f"ray-root-{ray_key}",
        registry=folder / f"registry-{ray_key}",
        docker_root=folder / f"docker-root-{root_key}",
    )


def ensure_lab_images(*, say: Say) -> LabImages:
    """Builds what is missing of the lab's images; under a second when nothing is.

    Args:
        say: takes one progress line; called from several threads, one at a time.

    Raises:
        RayrigError: Docker does not answer, root or a tool is missing, or a step failed; its log is named.
    """
    try:
        client = docker.from_env(timeout=_DOCKER_SECONDS)
    except DockerException as error:
        raise RayrigError(
            "The Docker engine does not answer", why=str(error), next_step="start it, and see `docker info`"
        ) from error
    try:
        plan = _plan()
        if not _complete(client, plan):
            with exclusive("images", say=say):
                _build(client, plan, _one_at_a_time(say))
        for part in (plan.node_tar, plan.registry, plan.docker_root):
            os.utime(part)
        base = json.loads(plan.base_record.read_text())
    except DockerException as error:
        raise RayrigError("The Docker engine refused a part of the lab's images", why=str(error)) from error
    finally:
        client.close()
    return LabImages(
        node_image=plan.node_image,
        prepared_docker_root=plan.docker_root,
        ray_base_image_id=base["image_id"],
        registry_store=plan.registry,
    )


def _one_at_a_time(say: Say) -> Say:
    lock = threading.Lock()

    def locked(line: str) -> None:
        with lock:
            say(line)

    return locked


def _complete(client: docker.DockerClient, plan: _Plan) -> bool:
    return (
        plan.base_record.exists()
        and plan.docker_root.exists()
        and plan.node_tar.exists()
        and _has(client, plan.node_image)
    )


def _has(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.get(image)
    except ImageNotFound:
        return False
    return True


def _build(client: docker.DockerClient, plan: _Plan, say: Say) -> None:
    """Makes what is missing; the two file systems at once, since each leaves a core idle while it downloads."""
    start = time.monotonic()
    work = images_dir() / "build"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        if not (plan.node_tar.exists() and (plan.base_record.exists() or plan.ray_root.exists())):
            say("building the lab's images: minutes, once")
            builder = prepare_host(say=say, log=images_dir() / "build.log")
            _together(builder, plan, work)
        if not _has(client, plan.node_image):
            _import_node(client, plan, say)
        if not plan.docker_root.exists() or not plan.base_record.exists():
            _store_and_prepare(client, plan, say)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(plan.ray_root, ignore_errors=True)
    _prune(client, plan, say)
    say(f"the lab's images stand ({time.monotonic() - start:.0f} s)")


def _together(builder: Builder, plan: _Plan, work: Path) -> None:
    """Makes the missing file systems side by side; when one fails the other is stopped."""
    with ThreadPoolExecutor(max_workers=2, thread_name_prefix="lab-image") as pool:
        jobs = []
        if not (plan.base_record.exists() or plan.ray_root.exists()):
            jobs.append(pool.submit(_make_ray_root, builder, plan, work / "ray"))
        if not plan.node_tar.exists():
            jobs.append(pool.submit(_make_node_tar, builder, plan, work / "node"))
        try:
            wait(jobs, return_when=FIRST_EXCEPTION)
            failed = [job for job in jobs if job.done() and job.exception()]
            (failed or jobs)[0].result()
        finally:
            builder.stop.set()
    for job in jobs:
        job.result()


def _make_ray_root(builder: Builder, plan: _Plan, root: Path) -> None:
    ray.make_ray_root(builder, root)
    root.replace(plan.ray_root)


def _make_node_tar(builder: Builder, plan: _Plan, root: Path) -> None:
    node.make_node_root(builder, root)
    draft = root.with_name("node.tar.gz")
    argv = ["tar", "-C", str(root), "--numeric-owner", "--xattrs", "-I", "gzip -1", "-cf", str(draft), "."]
    run_with_progress(
        argv,
        label="node image: packed",
        say=builder.say,
        log=builder.log,
        timeout_seconds=_PACK_SECONDS,
        stop=builder.stop,
    )
    shutil.rmtree(root)
    draft.replace(plan.node_tar)


class _Told:
    """A file whose reader tells how far it is."""

    def __init__(self, handle: IO[bytes], label: str, say: Say) -> None:
        self._handle = handle
        self._label = label
        self._say = say
        self._notice = time.monotonic()

    def read(self, size: int = -1) -> bytes:
        if time.monotonic() - self._notice >= _NOTICE_SECONDS:
            self._say(f"{self._label}: {self._handle.tell() >> 20} MiB")
            self._notice = time.monotonic()
        return self._handle.read(size)


def _import_node(client: docker.DockerClient, plan: _Plan, say: Say) -> None:
    say(f"node image: into Docker as {plan.node_image}")
    repository, _, tag = plan.node_image.partition(":")
    with plan.node_tar.open("rb") as handle:
        said = client.api.import_image(
            src=_Told(handle, "node image: into Docker", say),
            repository=repository,
            tag=tag,
            changes=['CMD ["/sbin/init"]'],
            stream_src=True,
        )
    if not _has(client, plan.node_image):
        raise RayrigError("Docker did not import the node image", where=str(plan.node_tar), why=str(said)[-300:])


def _store_and_prepare(client: docker.DockerClient, plan: _Plan, say: Say) -> None:
    """Puts the Ray image's base into the registry's store, and lets a node pull it from there."""
    if not plan.base_record.exists():
        # Another base has other digests: a root that holds an older one is of no use.
        shutil.rmtree(plan.docker_root, ignore_errors=True)
    plan.registry.mkdir(exist_ok=True)
    preparing = docker_root_in_preparation(
        client,
        plan.docker_root,
        node_image=plan.node_image,
        store=plan.registry,
        world_id=f"images-{secrets.token_hex(4)}",
        say=say,
    )
    with preparing as prepared:
        if not plan.base_record.exists():
            digest, image_id = push_base(plan.ray_root, prepared.registry, say=say)
            draft = plan.base_record.with_suffix(".part")
            draft.write_text(json.dumps({"digest": digest, "image_id": image_id}))
            draft.replace(plan.base_record)
        prepared.pull(REPOSITORY, json.loads(plan.base_record.read_text())["digest"], say=say)


def _prune(client: docker.DockerClient, plan: _Plan, say: Say) -> None:
    """Removes old versions of what was just built, the least recently used first; not while a world may use them."""
    if client.api.containers(all=True, filters={"label": WORLD_LABEL}):
        return
    folder = images_dir()
    for pattern in ("node-*.tar.gz", "ray-root-*", "registry-*", "docker-root-*"):
        found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
        current = {plan.node_tar, plan.ray_root, plan.registry, plan.docker_root}
        others = [path for path in found if path not in current]
        # A file system that was never stored is of use to its own version alone.
        for path in others if pattern == "ray-root-*" else others[KEPT_VERSIONS - 1 :]:
            say(f"removing an old version: {path.name}")
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    kept = {path.name.removeprefix("node-").removesuffix(".tar.gz") for path in folder.glob("node-*.tar.gz")}
    for image in client.images.list(name=NODE_REPOSITORY):
        for tag in image.tags:
            key = tag.partition(":")[2]
            if KEY_PATTERN.fullmatch(key) and key not in kept:
                _remove_tag(client, tag)


def _remove_tag(client: docker.DockerClient, tag: str) -> None:
    try:
        client.images.remove(tag)
    except APIError as error:
        if error.status_code != 409:  # noqa: PLR2004 - HTTP conflict: a container of it exists still
            raise
