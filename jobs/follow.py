"""Follows a job to its end: its log by offset, over disconnects; its state, and only that, says when it is over."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import aiohttp

from contract.errors import JobError, UnreachableError
from contract.exit_codes import ExitCode
from jobs.client import JobClient, JobInfo, JobState
from jobs.first_metric import FirstMetric

POLL_SECONDS = 1.0
DRAIN_SECONDS = 5.0
"""How long the log may still come after the job's end before the rest is fetched at once."""
LOST_SECONDS = 120.0
"""A head restarts in under a minute; one that is silent for longer is taken for lost."""
NODES_SECONDS = 10.0
"""How often it is looked whether nodes left or came."""
SIGNAL_BASE = 128

Connect = Callable[[], AbstractContextManager[JobClient]]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Deadlines of following, in seconds."""

    pending_seconds: float = 120.0
    """How long a job may stay PENDING."""
    total_seconds: float | None = None
    """How long it may take in all; it is stopped then."""
    lost_seconds: float = LOST_SECONDS


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How it ended; `state` is None when that cannot be learned any more."""

    state: JobState | None
    driver_exit_code: int | None
    message: str
    first_metric_seconds: float | None

    @property
    def exit_code(self) -> int:
        """The command's exit code: SUCCEEDED 0, FAILED the driver's, STOPPED 130, lost 75."""
        if self.state is JobState.SUCCEEDED:
            return ExitCode.SUCCESS
        if self.state is JobState.STOPPED:
            return ExitCode.STOPPED
        if self.state is None:
            return ExitCode.LOST
        code = self.driver_exit_code or ExitCode.FAILURE
        return code if code > 0 else SIGNAL_BASE - code


class Follower:
    """Follows one job.

    Args:
        connect: opens a connection to the Jobs API; called again after each loss.
        submission_id: the job.
        write: takes pieces of the job's log, exactly once each.
        say: takes lines of our own.
        limits: deadlines.
        started: `time.monotonic()` of the command's start.
        names: the nodes' names by private address; an unnamed one is told by its address.
    """

    def __init__(
        self,
        connect: Connect,
        submission_id: str,
        *,
        write: Callable[[str], None],
        say: Callable[[str], None],
        limits: Limits,
        started: float,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._connect = connect
        self._id = submission_id
        self._write = write
        self._say = say
        self._limits = limits
        self._started = started
        self._followed_from = time.monotonic()
        self._answered = time.monotonic()
        self._offset = 0
        self._first = FirstMetric(started)
        self._names = names or {}
        self._alive: frozenset[str] | None = None
        self._nodes_at = 0.0

    def run(self, client: JobClient | None = None) -> Outcome:
        """Follows to the end; a client at hand is used until it fails.

        Raises:
            JobError: pending or running for longer than the limits allow; the job has been stopped then.
        """
        while True:
            try:
                if client is not None:
                    return self._ended(asyncio.run(self._follow(client)))
                with self._connect() as fresh:
                    self._say("connected again")
                    return self._ended(asyncio.run(self._follow(fresh)))
            except UnreachableError as error:
                client = None
                silent = time.monotonic() - self._answered
                if silent > self._limits.lost_seconds:
                    self._say(f"lost: no answer for {silent:.0f} s; {error}")
                    return self._outcome(None, None, str(error))
                self._say(f"connection lost, trying again ({silent:.0f} of {self._limits.lost_seconds:.0f} s): {error}")
                time.sleep(POLL_SECONDS)

    async def _follow(self, client: JobClient) -> JobInfo | None:
        tail = asyncio.create_task(self._tail(client))
        try:
            while True:
                info = await asyncio.to_thread(client.find, self._id)
                self._answered = time.monotonic()
                if info is None or info.state.ended:
                    break
                await self._check_limits(client, info)
                await self._check_nodes(client)
                # Its end says nothing of the job's: only the state does.
                if tail.done():
                    tail.exception()
                    tail = asyncio.create_task(self._tail(client))
                await asyncio.sleep(POLL_SECONDS)
            if info is not None:
                await asyncio.wait({tail}, timeout=DRAIN_SECONDS)
        finally:
            tail.cancel()
            with contextlib.suppress(asyncio.CancelledError, UnreachableError):
                await tail
        if info is not None:
            whole = await asyncio.to_thread(client.logs, self._id)
            self._take(whole[self._offset :])
        return info

    async def _tail(self, client: JobClient) -> None:
        """Takes what is new; the server begins at the log's beginning each time."""
        seen = 0
        try:
            async for piece in client.tail(self._id):
                fresh = piece[max(0, self._offset - seen) :]
                seen += len(piece)
                self._take(fresh)
        except (aiohttp.ClientError, RuntimeError, OSError) as error:
            raise UnreachableError("the log broke off", why=str(error)) from error

    async def _check_limits(self, client: JobClient, info: JobInfo) -> None:
        waited = time.monotonic() - self._followed_from
        total = self._limits.total_seconds
        over: str | None = None
        if info.state is JobState.PENDING and waited > self._limits.pending_seconds:
            over = f"the job was still pending after {waited:.0f} s"
        elif total is not None and time.monotonic() - self._started > total:
            over = f"the job did not end within {total:.0f} s"
        if over is not None:
            await asyncio.to_thread(client.stop, self._id)
            # Ray cannot end a job that has no place yet: it ends as soon as it gets one.
            raise JobError(f"{over}; it has been told to stop", where=self._id, why=info.message)

    async def _check_nodes(self, client: JobClient) -> None:
        """Tells of nodes that left or came back while the job runs: it may be waiting for them."""
        if time.monotonic() - self._nodes_at < NODES_SECONDS:
            return
        self._nodes_at = time.monotonic()
        try:
            alive = frozenset(node.address for node in await asyncio.to_thread(client.nodes) if node.alive)
        except (UnreachableError, JobError):
            # The job's own state, asked for every second, tells whether the cluster still answers.
            return
        before, self._alive = self._alive, alive
        for address in sorted((before or alive) - alive):
            self._say(f"warning: {self._names.get(address, address)} left the cluster; `pulumi up` brings it back")
        for address in sorted(alive - (before or alive)):
            self._say(f"{self._names.get(address, address)} is in the cluster")

    def _take(self, text: str) -> None:
        if not text:
            return
        self._offset += len(text)
        self._write(text)
        self._first.take(text)

    def _ended(self, info: JobInfo | None) -> Outcome:
        if info is None:
            return self._outcome(None, None, "Ray does not know the job any more: its head was replaced")
        return self._outcome(info.state, info.driver_exit_code, info.message)

    def _outcome(self, state: JobState | None, code: int | None, message: str) -> Outcome:
        return Outcome(state=state, driver_exit_code=code, message=message, first_metric_seconds=self._first.seconds)
