"""The daemon of a world: makes all of it, waits to be told to end, and ends all of it.

Run as `python -m rehearsal.world.daemon DIRECTORY` by `rehearsal start`, which shows what this logs.
"""

import logging
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import psutil

from contract.errors import LeftoversError, RayrigError
from rehearsal.world.aws import open_aws
from rehearsal.world.board import Board
from rehearsal.world.places import Places, places
from rehearsal.world.record import Plan, World, read_plan, remove_traces, write_pid, write_world

WATCH_SECONDS = 0.5
LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"

log = logging.getLogger("rehearsal.world")


def main() -> int:
    """Runs one world to its end; 1 when it could not begin or did not end cleanly."""
    place = places(Path(sys.argv[1]))
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format=LOG_FORMAT, datefmt="%H:%M:%S", force=True)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    ending = threading.Event()

    def end(number: int, _frame: FrameType | None) -> None:
        log.info("ending: %s", signal.Signals(number).name)
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    plan = read_plan(place)
    if plan is None:
        log.error("no plan at %s: start a world with `python -m rehearsal start`", place.plan)
        return 1
    write_pid(place.pidfile)
    board = Board(place)
    board.catch_crashes()
    try:
        with ExitStack() as parts:
            world = _begin(place, plan, board, parts, ending)
            write_world(place, world)
            log.info("ready: %s", world.endpoint_url)
            ending.wait()
            place.record.unlink(missing_ok=True)
    except LeftoversError as error:
        # The plan stays: `stop` and the next `start` know by it whose things they are to remove.
        log.error("%s", error)  # noqa: TRY400 - the message is for a person
        place.pidfile.unlink(missing_ok=True)
        return 1
    except (RayrigError, OSError) as error:
        log.error("%s", error)  # noqa: TRY400 - the message is for a person
        remove_traces(place)
        return 1
    log.info("ended")
    remove_traces(place)
    return 0


def _begin(place: Places, plan: Plan, board: Board, parts: ExitStack, ending: threading.Event) -> World:
    if plan.watch_pid is not None:
        _watch(plan, ending)
    record = None
    if plan.lab:
        # Only here: a world without nodes needs neither Docker nor what talks to it.
        from rehearsal.world.lab import open_lab  # noqa: PLC0415

        endpoint_url, record = open_lab(place, plan, plan.lab, board, parts)
    else:
        endpoint_url = open_aws(place, plan, host="127.0.0.1", public_cidr=None, parts=parts).url
        board.write()
    return World(
        world_id=plan.world_id,
        pid=psutil.Process().pid,
        account_id=plan.account_id,
        region=plan.region,
        endpoint_url=endpoint_url,
        engine_bin=plan.engine_bin,
        lab=record,
    )


def _watch(plan: Plan, ending: threading.Event) -> None:
    """Ends the world once the process that it was made for has ended, however it ended."""

    def watch() -> None:
        while not ending.wait(WATCH_SECONDS):
            if not _lives(plan.watch_pid, plan.watch_started):
                log.info("ending: process %s, for which this world was made, has ended", plan.watch_pid)
                ending.set()

    threading.Thread(target=watch, name="watch", daemon=True).start()


def _lives(pid: int | None, started: float | None) -> bool:
    try:
        process = psutil.Process(pid)
        return process.create_time() == started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    sys.exit(main())
