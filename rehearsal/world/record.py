"""What others know of a world: its record on disk, and whether its daemon lives."""

import os
import shutil
from pathlib import Path

import psutil
from pydantic import Field, ValidationError

from contract.inventory import AccountId, WireModel
from rehearsal.world.places import Places, write_private

WORLD_LABEL = "rayrig.rehearsal"
"""On every container, network and volume of a world; its value is the world id."""
INSTANCE_LABEL = "rayrig.rehearsal.instance"
"""On a node's container: the instance that it is."""


class Lab(WireModel):
    """The part of a world that has nodes."""

    network: str = Field(description="name of the Docker network")
    bridge: str = Field(description="name of its bridge on this host")
    cidr: str = Field(description="private addresses; the VPC of a cluster must have it")
    public_cidr: str = Field(description="public addresses of the nodes")
    user_address: str = Field(description="the person's side among the public addresses")
    bridge_address: str = Field(description="gateway of the private addresses, on this host")
    registry_push: str = Field(description="host:port of the registry from this host")
    registry_pull: str = Field(description="host:port of the registry from the nodes")
    image: str = Field(description="the Ray image as nodes pull it, by digest")


class World(WireModel):
    """A running world, as `world.json` holds it."""

    world_id: str
    pid: int
    account_id: AccountId
    region: str
    endpoint_url: str
    engine_bin: str = Field(description="folder of the Pulumi CLI with its language host")
    lab: Lab | None = None


class LabParts(WireModel):
    """What a lab is made of, built before the world starts; see rehearsal.images.LabImages."""

    node_image: str
    prepared_docker_root: Path
    registry_store: Path


class Plan(WireModel):
    """What `start` decided; the daemon makes it so."""

    world_id: str
    account_id: AccountId
    region: str
    engine_bin: str
    lab: LabParts | None = Field(description="None for a world without nodes")
    watch_pid: int | None = None
    watch_started: float | None = Field(default=None, description="start of that process, seconds since the epoch")


def read_world(place: Places) -> World | None:
    """The recorded world, dead or alive; None when there is none."""
    try:
        return World.model_validate_json(place.record.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write_world(place: Places, world: World) -> None:
    """Records a world that is ready."""
    write_private(place.record, world.model_dump_json(indent=2) + "\n")


def read_plan(place: Places) -> Plan | None:
    """The plan of the last start; None when there is none."""
    try:
        return Plan.model_validate_json(place.plan.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write_pid(path: Path) -> None:
    """Records this process and when it began, so that a reused process id is not taken for it."""
    write_private(path, f"{os.getpid()} {psutil.Process().create_time()}\n")


def live_daemon(place: Places) -> psutil.Process | None:
    """The daemon's process; None when it has ended (also when its id now belongs to another process)."""
    try:
        pid, started = place.pidfile.read_text(encoding="utf-8").split()
        process = psutil.Process(int(pid))
        if process.create_time() != float(started) or process.status() == psutil.STATUS_ZOMBIE:
            return None
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None
    return process


def remove_traces(place: Places) -> None:
    """Removes a world's files but its log and requests: record, keys, stack, and the plan last of all.

    The pid file goes after the folders: whoever waits for a daemon's end by it would else remove them at the same time.
    """
    for path in (place.record, place.status, place.stack_config, place.ssh_key, place.passphrase):
        path.unlink(missing_ok=True)
    place.ssh_key.with_suffix(".pub").unlink(missing_ok=True)
    for folder in (place.pulumi_home, place.pulumi_state, place.notices):
        shutil.rmtree(folder, ignore_errors=not folder.exists())
    place.pidfile.unlink(missing_ok=True)
    place.plan.unlink(missing_ok=True)
