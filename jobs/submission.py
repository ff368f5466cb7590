"""One submission to a cluster, from preflight to the job's end. Imports ray's client: import it late."""

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from contract.errors import JobError
from contract.inventory import Inventory
from contract.names import PROVE_AGAIN
from jobs import preflight
from jobs.catalog import Entry
from jobs.client import JobClient
from jobs.follow import Connect, Follower, Limits, Outcome
from jobs.train.config import JobConfig
from jobs.tunnel import open_dashboard

GIT_SECONDS = 10.0
RUN_URI_METADATA = "rayrig_run_uri"
BACK = (
    f"what crashed is back within two minutes, an ended instance after `pulumi up`, anything else after `{PROVE_AGAIN}`"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to run."""

    entry: Entry
    config: JobConfig
    settings: Mapping[str, object]
    """The settings that differ from the defaults, as sent."""
    submission_id: str
    """Derived from the run's name: the same id twice is one job."""
    run_uri: str
    resume: bool = False
    context: Mapping[str, object]
    """What is known of the cluster, for the run's cluster.json."""


@dataclass(frozen=True, kw_only=True)
class Followed:
    """What came of it."""

    outcome: Outcome | None
    """None when detached: the job goes on without us."""
    run_uri: str
    """Where the job writes; another one than asked for when an older job was attached to."""


def entrypoint(request: Request) -> str:
    """The shell line that Ray runs on the head."""
    argv = ["python", "-u", "-m", request.entry.module, "--run-uri", request.run_uri]
    argv += ["--config", json.dumps(request.settings), "--context", json.dumps(request.context)]
    return shlex.join([*argv, *(["--resume"] if request.resume else [])])


def cluster_context(inventory: Inventory) -> dict[str, object]:
    """What of the inventory goes into a run's cluster.json."""
    return {
        "cluster_id": inventory.cluster_id,
        "stack": inventory.stack,
        "region": inventory.region,
        "image": inventory.image.reference,
        "image_versions": inventory.image.versions,
        "nodes_by_name": {n.name: {"address": n.private_ip, "type": n.instance_type} for n in inventory.nodes},
        "git_commit": git_commit(),
    }


def git_commit() -> str | None:
    """The commit of the code at hand, `-dirty` when it was changed; None outside git."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def connector(inventory: Inventory) -> Connect:
    """Opens connections to a cluster's Jobs API."""

    @contextmanager
    def connect() -> Iterator[JobClient]:
        with open_dashboard(inventory) as dashboard:
            yield JobClient(dashboard)

    return connect


def submit_and_follow(
    request: Request,
    connect: Connect,
    *,
    inventory: Inventory | None,
    detach: bool,
    limits: Limits,
    write: Callable[[str], None],
    say: Callable[[str], None],
    started: float,
) -> Followed:
    """Submits, or attaches to the job of that id, and follows it to its end.

    Args:
        request: what to run.
        connect: opens a connection to the Jobs API.
        inventory: the cluster, where there is one, to name nodes that are missing.
        detach: return once Ray has taken the job.
        limits: deadlines.
        write: takes the job's log.
        say: takes lines of our own.
        started: `time.monotonic()` of the command's start.

    Raises:
        JobError: the cluster can't give what the job needs, refused it, or let it wait too long.
        UnreachableError: the cluster can't be reached in the first place.
    """
    with ExitStack() as stack:
        client = stack.enter_context(connect())
        run_uri = submit(client, request, inventory, say)
        if detach:
            return Followed(outcome=None, run_uri=run_uri)
        follower = Follower(
            connect,
            request.submission_id,
            write=write,
            say=say,
            limits=limits,
            started=started,
            names={node.private_ip: node.name for node in inventory.nodes} if inventory else {},
        )
        return Followed(outcome=follower.run(client), run_uri=run_uri)


def submit(client: JobClient, request: Request, inventory: Inventory | None, say: Callable[[str], None]) -> str:
    """Submits, or attaches to the job of that id; where it writes.

    Raises:
        JobError: the cluster can't give what the job needs, or Ray refused it.
        UnreachableError: the Jobs API does not answer.
    """
    wanted, submission_id = entrypoint(request), request.submission_id
    known = client.find(submission_id)
    if known is None:
        nodes = client.nodes()
        if inventory is not None and (missing := preflight.missing_nodes(inventory, nodes)):
            say(f"warning: not alive in Ray: {', '.join(missing)}; {BACK}")
        preflight.check_needs(request.config.needs(), nodes)
        try:
            client.submit(submission_id=submission_id, entrypoint=wanted, metadata={RUN_URI_METADATA: request.run_uri})
        except JobError:
            # Someone else was faster with the same name: then it is one job, and ours too.
            known = client.find(submission_id)
            if known is None:
                raise
        else:
            say(f"submitted {submission_id}: {request.entry.places}")
            return request.run_uri
    say(f"attached to {submission_id}, {known.state.value}")
    if known.entrypoint != wanted:
        say("note: it has the settings of its first submission; another --run-name makes another run")
    return known.metadata.get(RUN_URI_METADATA, request.run_uri)


def check_before_connecting(inventory: Inventory, say: Callable[[str], None]) -> None:
    """Deadline, endpoint and account; raises JobError or WrongAccountError."""
    preflight.check_deadline(inventory, datetime.now(UTC))
    preflight.check_endpoint(inventory)
    if unchecked := preflight.check_account(inventory):
        say(f"note: the account is not checked and the summary will not be read: {unchecked}")
