"""The follower against a scripted Jobs API; a real one is in tests/engine/test_jobs_submission.py."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest

from contract.errors import JobError, UnreachableError
from contract.exit_codes import ExitCode
from jobs import follow
from jobs.client import JobInfo, JobState, RayNode
from jobs.follow import Follower, Limits, Outcome


class Script:
    """Answers one state per question; the log ends when the script says so, not when the job does."""

    def __init__(self, *states: JobState | None, log: str = "", pieces: tuple[str, ...] = ()) -> None:
        self.states = list(states)
        self.log = log
        self.pieces = pieces
        self.alive: list[set[str]] = [{"10.77.0.4"}]
        self.stopped = False
        self.reachable: Callable[[], bool] = lambda: True

    def find(self, _id: str) -> JobInfo | None:
        if not self.reachable():
            raise UnreachableError("the Jobs API does not answer")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state is None:
            return None
        return JobInfo(state=state, message="words", driver_exit_code=4, entrypoint="", metadata={})

    async def tail(self, _id: str) -> AsyncIterator[str]:
        for piece in self.pieces:
            yield piece

    def logs(self, _id: str) -> str:
        return self.log

    def nodes(self) -> list[RayNode]:
        alive = self.alive.pop(0) if len(self.alive) > 1 else self.alive[0]
        return [RayNode(address=a, alive=a in alive, head=False, resources={}) for a in ("10.77.0.4", "10.77.0.5")]

    def stop(self, _id: str) -> None:
        self.stopped = True


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(follow, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(follow, "NODES_SECONDS", 0.0)


def _follow(script: Script, limits: Limits | None = None) -> tuple[Outcome, str, list[str]]:
    written: list[str] = []
    said: list[str] = []

    @contextmanager
    def connect() -> Iterator[Script]:
        yield script

    follower = Follower(
        connect,  # type: ignore[arg-type]
        "mine",
        write=written.append,
        say=said.append,
        limits=limits or Limits(),
        started=time.monotonic(),
        names={"10.77.0.5": "worker-2"},
    )
    return follower.run(), "".join(written), said


def test_a_log_that_closes_early_does_not_end_the_job_and_nothing_comes_twice() -> None:
    script = Script(*[JobState.RUNNING] * 5, JobState.SUCCEEDED, log="one\ntwo\nthree\n", pieces=("one\n", "two\n"))
    outcome, written, _ = _follow(script)
    assert outcome.exit_code == ExitCode.SUCCESS
    assert written == "one\ntwo\nthree\n"


def test_a_node_that_leaves_is_named_and_so_is_its_return() -> None:
    """J-02."""
    script = Script(*[JobState.RUNNING] * 6, JobState.SUCCEEDED)
    both, one = {"10.77.0.4", "10.77.0.5"}, {"10.77.0.4"}
    script.alive = [both, both, one, one, both]
    _, _, said = _follow(script)
    assert [line for line in said if "worker-2" in line] == [
        "warning: worker-2 left the cluster; `pulumi up` brings it back",
        "worker-2 is in the cluster",
    ]


def test_a_job_that_ray_forgot_is_lost() -> None:
    assert _follow(Script(JobState.RUNNING, None))[0].exit_code == ExitCode.LOST


def test_silence_is_waited_out_and_then_called_lost() -> None:
    script = Script(JobState.RUNNING, JobState.RUNNING, JobState.FAILED)
    silent_until = time.monotonic() + 0.2
    script.reachable = lambda: time.monotonic() > silent_until
    outcome, _, said = _follow(script)
    assert (outcome.state, outcome.exit_code) == (JobState.FAILED, 4)
    assert any("connection lost" in line for line in said)
    script.reachable = lambda: False
    assert _follow(script, Limits(lost_seconds=0.1))[0].exit_code == ExitCode.LOST


@pytest.mark.parametrize(
    ("state", "limits", "words"),
    [
        (JobState.PENDING, Limits(pending_seconds=0.1), "still pending"),
        (JobState.RUNNING, Limits(total_seconds=0.1), "did not end within"),
    ],
)
def test_what_takes_too_long_is_stopped(state: JobState, limits: Limits, words: str) -> None:
    script = Script(state)
    with pytest.raises(JobError, match=words):
        _follow(script, limits)
    assert script.stopped
