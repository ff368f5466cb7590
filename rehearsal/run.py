"""`make rehearse`: the literal three commands against the rehearsal, each stage timed and proven."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from contract.errors import ConfigError, NotReadyError, RayrigError
from contract.inventory import Inventory, parse_inventory
from rehearsal.ledger import snapshot
from rehearsal.processes import MemorySampler, Outcome, print_line, run_shown
from rehearsal.report import Report, Stage, table
from rehearsal.world.places import places
from rehearsal.world.record import live_daemon, read_plan

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".rayrig"
REPORT = STATE / "rehearsal" / "report.json"
GOAL_RETURN = 480.0

UP_TIMEOUT_SECONDS = 420.0
SUBMIT_TIMEOUT_SECONDS = 900.0
DESTROY_TIMEOUT_SECONDS = 180.0
WORLD_TIMEOUT_SECONDS = 3600.0
PLAIN_COLUMNS = 140
"""Width of the table where there is no terminal to ask."""


def main() -> int:
    """Runs the rehearsal; 0 only when every stage was proven. The report is kept in any case.

    Raises:
        ConfigError: a world is up that is not ours to use and end.
    """
    _require_own_world()
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_COLUMNS)
    report = Report()
    logs = STATE / "logs" / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    with _termination_as_interrupt():
        try:
            _rehearse(report, logs)
        except KeyboardInterrupt:
            console.print("\n[bold]interrupted[/bold]: everything this rehearsal started is being ended")
        except RayrigError as error:
            console.print(f"\n[bold red]not proven[/bold red]: {error}", highlight=False, soft_wrap=True)
        finally:
            if not _strange_world():
                _stop_world(report, logs)
    report.save(REPORT)
    console.print(table(report))
    console.print(f"report: {REPORT.relative_to(ROOT)}, logs: {logs.relative_to(ROOT)}", highlight=False)
    return 0 if report.proven and report.left == 0 else 1


def _rehearse(report: Report, logs: Path) -> None:
    memory = MemorySampler()
    try:
        _stages(report, logs, sys.executable)
    finally:
        report.peak_memory_bytes = memory.stop()


def _stages(report: Report, logs: Path, python: str) -> None:
    start = [python, "-m", "rehearsal", "start", "--watch-pid", str(os.getpid())]
    world = _stage(report, "world", start, env=os.environ, logs=logs, timeout_seconds=WORLD_TIMEOUT_SECONDS)
    _require_own_world()
    _record(report, "world", world, "moto, metadata, registry and images stand")
    env = world_environment(python)
    before = _snapshot(env)
    inventory = _up(report, env, logs)
    _second_up(report, env, logs)
    _submit(report, env, logs, python)
    _destroy(report, env, logs, inventory)
    left = _snapshot(env) - before - {f"bucket/{inventory.storage.bucket}"}
    report.left = len(left)
    if left:
        raise NotReadyError("destroy left resources behind", why=", ".join(sorted(left)))


def _strange_world() -> str | None:
    """The id of the world that is up or being started and was not made for this process; None when there is none."""
    plan = read_plan(places())
    return plan.world_id if plan and plan.watch_pid != os.getpid() and live_daemon(places()) else None


def _require_own_world() -> None:
    """A person's world, or another rehearsal's, is neither used nor ended: its cluster would go with it."""
    if world := _strange_world():
        raise ConfigError(
            "a world is up already",
            where=world,
            next_step="`python -m rehearsal stop` ends it, with its cluster and stack; then this again",
        )


def _stage(
    report: Report,
    name: str,
    argv: list[str],
    *,
    env: Mapping[str, str],
    logs: Path,
    timeout_seconds: float,
    show: Callable[[str], None] = print_line,
) -> Outcome:
    command = " ".join(["python", *argv[1:]] if argv[0] == sys.executable else argv)
    print_line(f"\n── {name}: {command}")
    log = logs / f"{len(report.stages):02d}-{name.replace(' ', '-')}.log"
    started = time.monotonic()
    try:
        outcome = run_shown(argv, env=env, log=log, timeout_seconds=timeout_seconds, show=show)
    except KeyboardInterrupt:
        report.stages.append(Stage(name=name, seconds=time.monotonic() - started, proven=False, detail="interrupted"))
        raise
    if outcome.exit_code != 0:
        report.stages.append(Stage(name=name, seconds=outcome.seconds, proven=False, detail=_reason(outcome)))
        raise NotReadyError(
            f"`{command}` ended with exit code {outcome.exit_code}",
            where=name,
            why=_reason(outcome),
            next_step=f"read {log.relative_to(ROOT)}",
        )
    return outcome


def _reason(outcome: Outcome) -> str:
    lines = [line.strip() for line in outcome.output.splitlines() if line.strip()]
    if outcome.exit_code == TIMED_OUT:
        return f"did not end within its deadline ({outcome.seconds:.0f} s)"
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return errors[-1] if errors else (lines[-1] if lines else "no output")


TIMED_OUT = 124


def _record(report: Report, name: str, outcome: Outcome, detail: str, *, proven: bool = True) -> None:
    report.stages.append(Stage(name=name, seconds=outcome.seconds, proven=proven, detail=detail))
    if not proven:
        raise NotReadyError(detail, where=name)


def _up(report: Report, env: Mapping[str, str], logs: Path) -> Inventory:
    outcome = _stage(report, "up", ["pulumi", "up", "--yes"], env=env, logs=logs, timeout_seconds=UP_TIMEOUT_SECONDS)
    inventory = _inventory(env)
    report.nodes = len(inventory.nodes)
    ready = _object(env, f"{inventory.storage.cluster_uri}/readiness.json")["nodes"]
    proven = ready.keys() == {node.name for node in inventory.nodes}
    detail = f"{report.nodes} nodes, proven ready: {', '.join(sorted(ready))}"
    _record(report, "up", outcome, detail, proven=proven)
    return inventory


def _second_up(report: Report, env: Mapping[str, str], logs: Path) -> None:
    argv = ["pulumi", "up", "--yes"]
    outcome = _stage(report, "second up", argv, env=env, logs=logs, timeout_seconds=UP_TIMEOUT_SECONDS)
    changes = _changes_of_last_update(env)
    report.second_up_changes = changes
    _record(report, "second up", outcome, f"{changes} changes", proven=changes == 0)


def _submit(report: Report, env: Mapping[str, str], logs: Path, python: str) -> None:
    argv = [python, "-m", "jobs.submit", "ppo", "--json"]
    outcome = _stage(report, "submit", argv, env=env, logs=logs, timeout_seconds=SUBMIT_TIMEOUT_SECONDS)
    result = _last_json(outcome)
    report.return_ = result.get("return")
    first = result.get("first_metric_seconds")
    if isinstance(first, int | float):
        report.stages.append(Stage(name="submit to first metric", seconds=first, proven=True))
    reached = isinstance(report.return_, int | float) and report.return_ >= GOAL_RETURN
    detail = f"{result.get('state')}, return {report.return_}, {result.get('env_steps')} steps, {result.get('run_uri')}"
    _record(report, "submit", outcome, detail, proven=reached and result.get("state") == "SUCCEEDED")


def _destroy(report: Report, env: Mapping[str, str], logs: Path, inventory: Inventory) -> None:
    argv = ["pulumi", "destroy", "--yes"]
    outcome = _stage(report, "destroy", argv, env=env, logs=logs, timeout_seconds=DESTROY_TIMEOUT_SECONDS)
    receipt_file = STATE / "receipts" / f"{inventory.cluster_id}.json"
    if not receipt_file.is_file():
        _record(report, "destroy", outcome, "no receipt was saved", proven=False)
    receipt = receipt_file.read_text(encoding="utf-8")
    left = json.loads(receipt).get("left")
    named = inventory.storage.bucket in receipt
    detail = (
        f"receipt: {len(left) if isinstance(left, list) else left} left, kept bucket {'' if named else 'NOT '}named"
    )
    _record(report, "destroy", outcome, detail, proven=not left and named)


def world_environment(python: str) -> dict[str, str]:
    """The environment that `eval "$(python -m rehearsal env)"` gives a person's shell, taken in that very way."""
    script = 'set -eu; exports="$("$1" -m rehearsal env)"; eval "$exports"; exec env -0'
    argv = ["sh", "-c", script, "sh", python]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise NotReadyError("the rehearsal's environment cannot be read", why=done.stderr.strip())
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)


def _pulumi(env: Mapping[str, str], *arguments: str) -> str:
    argv = ["pulumi", *arguments]
    done = subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    if done.returncode:
        raise NotReadyError(f"`{' '.join(argv)}` failed", why=done.stderr.strip())
    return done.stdout


def _inventory(env: Mapping[str, str]) -> Inventory:
    return parse_inventory(_pulumi(env, "stack", "output", "cluster", "--json"), source="stack output `cluster`")


def _changes_of_last_update(env: Mapping[str, str]) -> int:
    history = json.loads(_pulumi(env, "stack", "history", "--json", "--page-size", "1", "--page", "1"))
    counts: dict[str, int] = history[0].get("resourceChanges") or {}
    return sum(count for operation, count in counts.items() if operation != "same")


def _snapshot(env: Mapping[str, str]) -> frozenset[str]:
    with _credentials(env):
        return snapshot(endpoint_url=env["AWS_ENDPOINT_URL"], region=env["AWS_REGION"])


def _object(env: Mapping[str, str], uri: str) -> dict[str, Any]:
    import boto3  # noqa: PLC0415 - half a second that other verbs need not pay

    bucket, _, key = uri.removeprefix("s3://").partition("/")
    with _credentials(env):
        s3 = boto3.session.Session(region_name=env["AWS_REGION"]).client("s3", endpoint_url=env["AWS_ENDPOINT_URL"])
        document: dict[str, Any] = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    return document


@contextmanager
def _credentials(env: Mapping[str, str]) -> Iterator[None]:
    """The rehearsal's own AWS settings for this process, for as long as it asks its AWS; then the person's again."""
    names = {name for name in (*os.environ, *env) if name.startswith("AWS_") or name.upper() == "NO_PROXY"}
    before = {name: os.environ.get(name) for name in names}
    for name in names:
        if name in env:
            os.environ[name] = env[name]
        else:
            os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _last_json(outcome: Outcome) -> dict[str, Any]:
    for line in reversed(outcome.output.splitlines()):
        if line.startswith("{"):
            result: dict[str, Any] = json.loads(line)
            return result
    raise NotReadyError("submit printed no result", where="submit")


def _stop_world(report: Report, logs: Path) -> None:
    argv = [sys.executable, "-m", "rehearsal", "stop"]
    print_line("\n── stop: python -m rehearsal stop")
    started = time.monotonic()
    outcome = run_shown(argv, env=os.environ, log=logs / "99-stop.log", timeout_seconds=120, show=print_line)
    proven = outcome.exit_code == 0
    detail = "no process, container, network or stack left" if proven else _reason(outcome)
    report.stages.append(Stage(name="stop", seconds=time.monotonic() - started, proven=proven, detail=detail))


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a rehearsal as Ctrl-C does; another one during the clean-up is ignored, so that it ends."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
