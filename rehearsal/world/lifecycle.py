"""`start`, `stop` and `status`: a world from outside its daemon."""

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil

from contract.errors import RayrigError
from rehearsal.world.environment import daemon_environment
from rehearsal.world.keys import make_secrets
from rehearsal.world.places import PROJECT, Places, write_private
from rehearsal.world.record import LabParts, Plan, World, live_daemon, read_plan, read_world, remove_traces
from rehearsal.world.stack import configure_stack, init_stack

REGION = "eu-west-1"
READY_SECONDS = 300.0
"""Longest wait for the daemon: the first one pushes the Ray image (1.2 GB) to the lab's registry."""
END_SECONDS = 60.0
"""Longest wait for a daemon that was asked to end."""
POLL_SECONDS = 0.05

Say = Callable[[str], None]


def start(place: Places, *, with_nodes: bool, with_stack: bool, watch_pid: int | None, say: Say) -> World:
    """Starts a world, or says that one is up already and returns it.

    Args:
        place: where its files are.
        with_nodes: False for AWS and stack alone, which need no Docker.
        with_stack: False leaves Pulumi alone (tests that only use the AWS and its nodes).
        watch_pid: the world ends by itself when this process does; None: it stays until `stop`.
        say: takes one progress line.

    Raises:
        RayrigError: something is missing on this host, or a part did not start; nothing is left then.
    """
    place.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _only_start(place):
        return _start(place, with_nodes=with_nodes, with_stack=with_stack, watch_pid=watch_pid, say=say)


@contextmanager
def _only_start(place: Places) -> Iterator[None]:
    """Holds the place for one start at a time; the kernel lets it go if we die."""
    with place.lock.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RayrigError(
                "another start of this world is in progress",
                where=str(place.directory),
                next_step="wait for it, or stop it with Ctrl-C",
            ) from error
        yield


def _start(place: Places, *, with_nodes: bool, with_stack: bool, watch_pid: int | None, say: Say) -> World:
    if live := _live_world(place):
        if with_nodes and live.lab is None:
            raise RayrigError(
                "the world that is up has no nodes",
                where=live.world_id,
                next_step="`python -m rehearsal stop`, then start again",
            )
        say(f"the world {live.world_id} is up already at {live.endpoint_url}: used as it is")
        return live
    if read_plan(place) is not None:
        say("an earlier world died uncleanly: removing what it left")
        stop(place, say=say)
    if with_nodes:
        from rehearsal.world.preflight import require_lab  # noqa: PLC0415 - only worlds with nodes need Docker

        require_lab()
    plan = _plan(with_nodes=with_nodes, with_stack=with_stack, watch_pid=watch_pid, say=say)
    write_private(place.plan, plan.model_dump_json(indent=2))
    make_secrets(place)
    try:
        with ThreadPoolExecutor(max_workers=1) as pool:
            stack = pool.submit(init_stack, place, plan.engine_bin) if with_stack else None
            world = _run_daemon(place, say)
            if stack:
                stack.result()
                configure_stack(place, world)
                say(f"stack {place.stack}: {place.stack_config.relative_to(PROJECT)}")
    except BaseException:
        # Ctrl-C and SIGTERM too: whatever was begun is ended before the person gets the prompt back.
        stop(place, say=say)
        raise
    return world


def stop(place: Places, *, say: Say) -> None:
    """Ends a world and removes all that bears its label, its stack and its keys; content when there is none.

    Raises:
        RayrigError: the daemon did not end, or something could not be removed.
    """
    plan = read_plan(place)
    if daemon := live_daemon(place):
        _end(daemon, place, say)
    if plan and plan.lab:
        _remove_labelled(plan.world_id, say)
    remove_traces(place)
    say(f"world {plan.world_id} ended" if plan else "no world is up")
    if os.environ.get("RAYRIG_SSH_KEY") == str(place.ssh_key):
        say("this shell still has the rehearsal's settings: open a new one before you use an account of your own")


def status(place: Places) -> tuple[bool, Iterator[str]]:
    """Whether all is well, and the lines that say how it stands."""
    world = _live_world(place)
    if world is None:
        left = read_plan(place)
        why = f"; {left.world_id} died uncleanly: `python -m rehearsal stop` removes the rest" if left else ""
        return left is None, iter([f"no world is up{why}"])
    board: dict[str, Any] = json.loads(place.status.read_text(encoding="utf-8"))
    return not board["problems"], _status_lines(place, world, board)


def _status_lines(place: Places, world: World, board: dict[str, Any]) -> Iterator[str]:
    yield f"world {world.world_id}: AWS at {world.endpoint_url}, account {world.account_id}, process {world.pid}"
    yield f"log: {place.log}"
    if world.lab:
        yield f"nodes {world.lab.cidr}, public {world.lab.public_cidr}, you are {world.lab.user_address}"
    for instance_id, state in board["nodes"].items():
        yield f"  {instance_id}: {state}"
    for part, problem in board["problems"].items():
        yield f"PROBLEM {part}: {problem}"


def _live_world(place: Places) -> World | None:
    world = read_world(place)
    return world if world and live_daemon(place) else None


def _plan(*, with_nodes: bool, with_stack: bool, watch_pid: int | None, say: Say) -> Plan:
    engine_bin = ""
    if with_stack:
        from rehearsal.engine.cli import ensure_cli  # noqa: PLC0415 - only worlds with a stack need it

        engine_bin = str(ensure_cli(say))
    lab = None
    if with_nodes:
        from rehearsal.images import ensure_lab_images  # noqa: PLC0415 - only worlds with nodes need it

        images = ensure_lab_images(say=say)
        lab = LabParts(
            node_image=images.node_image,
            prepared_docker_root=images.prepared_docker_root,
            registry_store=images.registry_store,
        )
    return Plan(
        world_id=f"w{secrets.token_hex(4)}",
        # AWS gives no account numbers that begin with four zeros, so it can be nobody's.
        account_id=f"0000{secrets.randbelow(10**8):08d}",
        region=REGION,
        engine_bin=engine_bin,
        lab=lab,
        watch_pid=watch_pid,
        watch_started=psutil.Process(watch_pid).create_time() if watch_pid is not None else None,
    )


def _run_daemon(place: Places, say: Say) -> World:
    """Runs the daemon in a session of its own and shows its log until it is ready."""
    argv = [sys.executable, "-m", "rehearsal.world.daemon", str(place.directory)]
    with place.log.open("w", encoding="utf-8") as log, place.log.open(encoding="utf-8") as shown:
        daemon = subprocess.Popen(
            argv,
            env=daemon_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=PROJECT,
        )
        try:
            return _ready(daemon, shown, place, say)
        except BaseException:
            if live_daemon(place) is None:
                # Ctrl-C before it has said who it is: nobody else could end it, and it has made nothing yet.
                daemon.kill()
                daemon.wait()
            raise


def _ready(daemon: subprocess.Popen[bytes], shown: Iterable[str], place: Places, say: Say) -> World:
    deadline = time.monotonic() + READY_SECONDS
    lines: list[str] = []
    while time.monotonic() < deadline:
        ended = daemon.poll() is not None
        for line in shown:
            lines.append(line.rstrip())
            say(line.rstrip().partition(": ")[2] or line.rstrip())
        if world := read_world(place):
            return world
        if ended:
            raise RayrigError("the world did not start", why="\n".join(lines[-5:]), next_step=f"read {place.log}")
        time.sleep(POLL_SECONDS)
    raise RayrigError(f"the world was not ready within {READY_SECONDS:.0f} s", next_step=f"read {place.log}")


def _end(daemon: psutil.Process, place: Places, say: Say) -> None:
    say(f"ending the world's daemon, process {daemon.pid}")
    daemon.send_signal(signal.SIGTERM)
    if not _gone(daemon):
        daemon.kill()
        say(f"it did not end within {END_SECONDS:.0f} s and was killed: see {place.log}")
        if not _gone(daemon):
            raise RayrigError("the world's daemon cannot be ended", where=f"process {daemon.pid}")


def _gone(daemon: psutil.Process) -> bool:
    """Waits for the process's own end, after all its traces; one that nobody has reaped yet has ended too."""
    deadline = time.monotonic() + END_SECONDS
    while daemon.is_running() and daemon.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _remove_labelled(world_id: str, say: Say) -> None:
    from rehearsal.world.leftovers import docker_client, remove_world  # noqa: PLC0415 - only worlds with nodes

    with docker_client() as client:
        if count := remove_world(client, world_id):
            say(f"removed {count} containers, networks, volumes and folders that it left")
