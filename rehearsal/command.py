"""`python -m rehearsal`: start, stop, look at and enter an AWS that fits on one machine."""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType

from contract.errors import ConfigError, RayrigError
from contract.exit_codes import ExitCode
from rehearsal.world.places import Places, places


def main() -> int:
    """Runs one verb; returns its exit code."""
    arguments = _parser().parse_args()
    place = places(arguments.directory)
    verbs = {
        "start": _start,
        "stop": _stop,
        "env": _env,
        "status": _status,
        "spot-notice": _spot_notice,
        "rehearse": _rehearse,
    }
    try:
        return verbs[arguments.verb](place, arguments)
    except RayrigError as error:
        sys.stderr.write(f"error: {error}\n")
        return int(error.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rehearsal", description=__doc__)
    parser.add_argument("--directory", type=Path, help="where the world's files are (default: .rayrig/rehearsal)")
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("start", help="start a world: AWS, metadata, registry, container nodes, stack")
    start.add_argument("--without-nodes", action="store_true", help="AWS and stack only; needs no Docker")
    start.add_argument("--without-stack", action="store_true", help="leave Pulumi alone")
    start.add_argument("--watch-pid", type=int, metavar="PID", help="end by itself when this process ends")
    verbs.add_parser("stop", help="end the world and remove all of it")
    verbs.add_parser("env", help='shell settings: eval "$(python -m rehearsal env)"')
    verbs.add_parser("status", help="what is up and what is wrong")
    notice = verbs.add_parser("spot-notice", help="tell an instance that it will be interrupted in two minutes")
    notice.add_argument("instance", help="its id, i-…")
    notice.add_argument("--action", choices=("terminate", "stop", "hibernate"), default="terminate")
    verbs.add_parser("rehearse", help="the three commands from beginning to end, timed and proven")
    return parser


def _start(place: Places, arguments: argparse.Namespace) -> int:
    from rehearsal.world.lifecycle import start  # noqa: PLC0415 - each verb loads only what it needs

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        world = start(
            place,
            with_nodes=not arguments.without_nodes,
            with_stack=not arguments.without_stack,
            watch_pid=arguments.watch_pid,
            say=_say,
        )
    except KeyboardInterrupt:
        return int(ExitCode.STOPPED)
    elsewhere = f" --directory {shlex.quote(str(arguments.directory))}" if arguments.directory else ""
    _say(f'world {world.world_id} is up. Enter it: eval "$({_python()} -m rehearsal{elsewhere} env)"')
    return int(ExitCode.SUCCESS)


def _python() -> str:
    """This interpreter as a person types it from where they are."""
    path = Path(sys.executable)
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def _stop(place: Places, _arguments: argparse.Namespace) -> int:
    from rehearsal.world.lifecycle import stop  # noqa: PLC0415 - each verb loads only what it needs

    stop(place, say=_say)
    return int(ExitCode.SUCCESS)


def _env(place: Places, _arguments: argparse.Namespace) -> int:
    from rehearsal.world.environment import exports  # noqa: PLC0415 - each verb loads only what it needs
    from rehearsal.world.record import live_daemon, read_world  # noqa: PLC0415

    world = read_world(place)
    if world is None or live_daemon(place) is None:
        raise ConfigError("no world is up", next_step="python -m rehearsal start")
    sys.stdout.write(exports(place, world))
    return int(ExitCode.SUCCESS)


def _status(place: Places, _arguments: argparse.Namespace) -> int:
    from rehearsal.world.lifecycle import status  # noqa: PLC0415 - each verb loads only what it needs

    well, lines = status(place)
    for line in lines:
        _say(line)
    return int(ExitCode.SUCCESS if well else ExitCode.FAILURE)


def _spot_notice(place: Places, arguments: argparse.Namespace) -> int:
    from rehearsal.metadata.notices import give_spot_notice  # noqa: PLC0415 - each verb loads only what it needs

    give_spot_notice(place.notices, arguments.instance, action=arguments.action)
    _say(f"{arguments.instance} finds the notice at meta-data/spot/instance-action; nothing else is done")
    return int(ExitCode.SUCCESS)


def _rehearse(_place: Places, _arguments: argparse.Namespace) -> int:
    from rehearsal import run  # noqa: PLC0415 - each verb loads only what it needs

    return run.main()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
