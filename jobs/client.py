"""Ray's own job client with deadlines, and its answers under names of our own. Imports ray: import it late."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from contract.errors import JobError, UnreachableError
from contract.names import PROVE_AGAIN
from jobs.tunnel import Dashboard

REQUEST_SECONDS = 30.0
NOT_FOUND = 404


class JobState(StrEnum):
    """Ray's job states."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """Whether it is final."""
        return self in {JobState.STOPPED, JobState.SUCCEEDED, JobState.FAILED}


@dataclass(frozen=True, kw_only=True)
class JobInfo:
    """What Ray says of a job."""

    state: JobState
    message: str
    driver_exit_code: int | None
    entrypoint: str
    metadata: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """One node as the dashboard lists it."""

    address: str
    alive: bool
    head: bool
    resources: dict[str, float]


# Its INFO lines tell of sockets, in the middle of the job's own log.
logging.getLogger("ray.dashboard.modules.job.sdk").setLevel(logging.WARNING)


class _BoundedClient(JobSubmissionClient):  # type: ignore[misc]
    """Ray's client waits for an answer without end and asks the person's proxy for loopback; this one does neither."""

    def _do_request(self, method: str, endpoint: str, **options: Any) -> requests.Response:  # noqa: ANN401
        options.setdefault("timeout", REQUEST_SECONDS)
        options.setdefault("proxies", {"no_proxy": "127.0.0.1"})
        response: requests.Response = super()._do_request(method, endpoint, **options)
        return response


@contextmanager
def _answers(doing: str) -> Iterator[None]:
    """Turns a transport failure into UnreachableError and a refusal into JobError."""
    try:
        yield
    except (requests.RequestException, ConnectionError) as error:
        raise UnreachableError(
            f"{doing}: the Jobs API does not answer",
            why=str(error),
            next_step=f"Ray comes back by itself within a minute of a crash; after that: {PROVE_AGAIN}",
        ) from error
    except AuthenticationError as error:
        raise JobError(f"{doing}: Ray refused the token", why=str(error), next_step="pulumi up") from error
    except RuntimeError as error:
        raise JobError(f"{doing}: Ray refused", why=str(error)) from error


class JobClient:
    """The Jobs API of one cluster.

    Args:
        dashboard: where it answers.

    Raises:
        UnreachableError: nothing answers there.
        JobError: the token is refused, or Ray is too old.
    """

    def __init__(self, dashboard: Dashboard) -> None:
        headers = {"Authorization": f"Bearer {dashboard.token}"} if dashboard.token else {}
        with _answers("cannot connect"):
            self._ray = _BoundedClient(dashboard.url, headers=headers)

    def submit(self, *, submission_id: str, entrypoint: str, metadata: dict[str, str]) -> None:
        """Submits a job; raises JobError when Ray refuses it."""
        with _answers("cannot submit"):
            self._ray.submit_job(submission_id=submission_id, entrypoint=entrypoint, metadata=metadata)

    def find(self, submission_id: str) -> JobInfo | None:
        """The job; None when Ray knows none of that id."""
        with _answers("cannot ask for the job"):
            answer = self._ray._do_request("GET", f"/api/jobs/{submission_id}")
            if answer.status_code == NOT_FOUND:
                return None
            answer.raise_for_status()
            body = answer.json()
        return JobInfo(
            state=JobState(body["status"]),
            message=body.get("message") or "",
            driver_exit_code=body.get("driver_exit_code"),
            entrypoint=body.get("entrypoint") or "",
            metadata=dict(body.get("metadata") or {}),
        )

    def logs(self, submission_id: str) -> str:
        """The whole log up to now."""
        with _answers("cannot read the log"):
            return str(self._ray.get_job_logs(submission_id))

    def tail(self, submission_id: str) -> AsyncIterator[str]:
        """The log from its beginning, in pieces as it grows; may end, or fail, while the job runs."""
        pieces: AsyncIterator[str] = self._ray.tail_job_logs(submission_id)
        return pieces

    def stop(self, submission_id: str) -> None:
        """Asks the job to end; Ray sends SIGTERM, then SIGKILL."""
        with _answers("cannot stop the job"):
            self._ray.stop_job(submission_id)

    def nodes(self) -> list[RayNode]:
        """Every node that Ray lists, dead ones too."""
        with _answers("cannot list the nodes"):
            answer = self._ray._do_request("GET", "/api/v0/nodes?detail=true&limit=10000")
            answer.raise_for_status()
            body = answer.json()
        found = ((body.get("data") or {}).get("result") or {}).get("result")
        if not isinstance(found, list):
            raise JobError("cannot list the nodes", why=str(body.get("msg")))
        return [
            RayNode(
                address=str(node["node_ip"]),
                alive=node["state"] == "ALIVE",
                head=bool(node["is_head_node"]),
                resources=dict(node["resources_total"]),
            )
            for node in found
        ]
