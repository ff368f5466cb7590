"""The world that all lab tests share; it ends with the session, also when that is killed."""

import os
import sys
from collections.abc import Iterator

import docker
import pytest
from in_lab import LabWorld

from rehearsal.world.lifecycle import start, stop
from rehearsal.world.places import places


def say(line: str) -> None:
    """Shows progress past pytest's capture: the images take minutes when nothing is cached."""
    sys.__stderr__.write(f"  {line}\n")
    sys.__stderr__.flush()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabWorld]:
    """A world with nodes, and in it a VPC, a group, a key pair, a role and a bucket for tests."""
    place = places(tmp_path_factory.mktemp("world"))
    try:
        world = start(place, with_nodes=True, with_stack=False, watch_pid=os.getpid(), say=say)
        client = docker.from_env(timeout=60)
        try:
            made = LabWorld(place=place, world=world, docker=client)
            made.set_up()
            yield made
        finally:
            client.close()
    finally:
        stop(place, say=say)
