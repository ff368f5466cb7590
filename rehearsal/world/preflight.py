"""What this host must have before a world with nodes can start."""

import os
import shutil
import sys

import docker
from docker.errors import DockerException

from contract.errors import RayrigError

WITHOUT = "`python -m rehearsal start --without-nodes` needs none of it: AWS and stack, but no machines"


def require_lab() -> None:
    """Checks for Linux, root and a running Docker engine.

    Raises:
        RayrigError: one is missing; says which part needs it and how to get it.
    """
    if not sys.platform.startswith("linux"):
        raise RayrigError("nodes need Linux", why="their images, networks and packet filters are Linux's")
    if os.geteuid() != 0:
        raise RayrigError(
            "nodes need root",
            why="their images are made with debootstrap and chroot, their Docker roots are copies of root's own files "
            "(cp -a), and the lab's bridge gets an address (ip address add)",
            next_step="run the same command as root (sudo -E). " + WITHOUT,
        )
    if problem := docker_problem():
        raise RayrigError(
            "no Docker engine for the nodes, their network and their registry",
            why=problem,
            next_step="apt-get install docker.io, then `systemctl start docker` (or run `dockerd` as root). " + WITHOUT,
        )


def docker_problem() -> str | None:
    """Why Docker cannot be used; None when it can."""
    try:
        client = docker.from_env(timeout=10)
        try:
            client.ping()
        finally:
            client.close()
    except DockerException as error:
        return f"{error}" if shutil.which("dockerd") else f"no dockerd on PATH, and {error}"
    return None
