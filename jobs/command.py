"""What `python -m jobs.submit` does once its options are read."""

import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from contract.errors import ConfigError, JobError
from contract.exit_codes import ExitCode
from contract.inventory import Inventory
from jobs.catalog import Entry, find_entry
from jobs.embedded import check_installed, run_embedded
from jobs.find_cluster import find_cluster, project_directory
from jobs.report import Report, make_report
from jobs.settings import merge
from jobs.train.config import JobConfig, parse_config

RUNS_FOLDER = Path(".rayrig") / "runs"
"""Under the project's folder, or where the command was called: runs of this machine."""
RUN_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,62}$")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The command line."""

    name: str
    settings: tuple[str, ...] = ()
    config: Path | None = None
    stack: str | None = None
    inventory: Path | None = None
    run_name: str | None = None
    resume: str | None = None
    detach: bool = False
    local: bool = False
    timeout_seconds: float | None = None
    pending_seconds: float = 120.0
    as_json: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, wherever it goes."""

    entry: Entry
    config: JobConfig
    settings: Mapping[str, object]
    name: str
    submission_id: str
    resume: bool


class Output:
    """Where lines go: to standard output, or to standard error when that is to hold one line of JSON."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._stream = sys.stderr if to_stderr else sys.stdout

    def write(self, text: str) -> None:
        """A piece of the job's log."""
        self._stream.write(text)
        self._stream.flush()

    def say(self, line: str) -> None:
        """A line of our own."""
        self.write(f"[rayrig] {line}\n")


def run(options: Options) -> int:
    """Submits, follows and reports.

    Returns:
        The job's exit code: SUCCEEDED 0, FAILED the driver's, STOPPED or detached by Ctrl-C 130, lost 75.

    Raises:
        RayrigError: it could not be submitted, or not followed within the deadlines.
    """
    started = time.monotonic()
    output = Output(to_stderr=options.as_json)
    job = plan_run(options)
    if options.local:
        if options.inventory or options.stack:
            raise ConfigError("--local goes with neither --stack nor --inventory")
        return _run_here(job, options, output, started, why="--local")
    found = find_cluster(inventory=options.inventory, stack=options.stack, directory=Path.cwd())
    if found.inventory is None:
        return _run_here(job, options, output, started, why=found.why)
    return _run_there(job, options, output, started, found.inventory)


def plan_run(options: Options) -> Run:
    """Checks what can be checked without a cluster; raises ConfigError."""
    entry = find_entry(options.name)
    settings = merge(entry.defaults, options.config, options.settings)
    source = "--set" if options.config is None else f"--set or {options.config}"
    config = parse_config(entry.config_model(), settings, source=source)
    if options.resume and options.run_name:
        raise ConfigError("--resume names the run already", where="--run-name")
    now = datetime.now(UTC)
    name = options.resume or options.run_name or f"{entry.name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if not RUN_NAME.match(name):
        raise ConfigError(f"{name!r} cannot be a run's name", next_step="use a-z, 0-9 and -, at most 63 characters")
    # A resumed run is a new job: Ray takes each id once.
    submission_id = f"{name}-resumed-{now:%Y%m%d-%H%M%S}" if options.resume else name
    explicit = config.model_dump(mode="json", include=set(settings))
    return Run(
        entry=entry,
        config=config,
        settings=explicit,
        name=name,
        submission_id=submission_id,
        resume=options.resume is not None,
    )


def _run_here(job: Run, options: Options, output: Output, started: float, *, why: str) -> int:
    if options.detach:
        raise ConfigError("a run on this machine cannot be detached", why=why, next_step="leave --detach out")
    check_installed()
    folder = (project_directory(Path.cwd()) or Path.cwd()) / RUNS_FOLDER / job.name
    if job.resume and not folder.is_dir():
        raise JobError("there is no such run to resume", where=str(folder))
    if not job.resume and (folder / "config.json").exists():
        raise JobError("a run of that name exists", where=str(folder), next_step=f"--resume {job.name}")
    output.say(f"no cluster ({why}): training on this machine with an embedded Ray")
    output.say(f"run: {folder}")
    ended = run_embedded(
        job.entry,
        run_uri=folder.as_uri(),
        config=job.settings,
        resume=job.resume,
        write=output.write,
        total_seconds=options.timeout_seconds,
        started=started,
    )
    state = {int(ExitCode.SUCCESS): "SUCCEEDED", int(ExitCode.STOPPED): "STOPPED"}.get(ended.exit_code, "FAILED")
    return _report(
        make_report(
            run=job.name,
            run_uri=folder.as_uri(),
            inventory=None,
            state=state,
            exit_code=ended.exit_code,
            message=None,
            total_seconds=time.monotonic() - started,
            first_metric_seconds=ended.first_metric_seconds,
        ),
        options,
        output,
    )


def _run_there(job: Run, options: Options, output: Output, started: float, inventory: Inventory) -> int:
    from jobs import submission  # noqa: PLC0415 - imports ray's client
    from jobs.follow import Limits  # noqa: PLC0415 - imports ray's client

    say: Callable[[str], None] = output.say
    say(f"cluster {inventory.cluster_id}: {len(inventory.nodes)} nodes, image {inventory.image.reference}")
    submission.check_before_connecting(inventory, say)
    back = f"python -m jobs.submit {job.entry.name} --run-name {job.submission_id}"
    back += f" --inventory {options.inventory}" if options.inventory else ""
    back += f" --stack {options.stack}" if options.stack else ""
    request = submission.Request(
        entry=job.entry,
        config=job.config,
        settings=job.settings,
        submission_id=job.submission_id,
        run_uri=f"{inventory.storage.results_uri}/{job.name}",
        resume=job.resume,
        context=submission.cluster_context(inventory),
    )
    try:
        followed = submission.submit_and_follow(
            request,
            submission.connector(inventory),
            inventory=inventory,
            detach=options.detach,
            limits=Limits(pending_seconds=options.pending_seconds, total_seconds=options.timeout_seconds),
            write=output.write,
            say=say,
            started=started,
        )
    except KeyboardInterrupt:
        say(f"detached, the job goes on; to come back: {back}")
        return ExitCode.STOPPED
    if followed.outcome is None:
        say(f"the job runs; to follow it: {back}")
    outcome = followed.outcome
    state = "SUBMITTED" if outcome is None else outcome.state.value if outcome.state else "LOST"
    return _report(
        make_report(
            run=job.name,
            run_uri=followed.run_uri,
            inventory=inventory,
            state=state,
            exit_code=outcome.exit_code if outcome else ExitCode.SUCCESS,
            message=outcome.message if outcome else None,
            total_seconds=time.monotonic() - started,
            first_metric_seconds=outcome.first_metric_seconds if outcome else None,
        ),
        options,
        output,
    )


def _report(report: Report, options: Options, output: Output) -> int:
    output.write(report.as_text() + "\n")
    if options.as_json:
        sys.stdout.write(report.as_json() + "\n")
        sys.stdout.flush()
    return report.exit_code
