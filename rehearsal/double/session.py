"""The double's way to AWS: clients to its configured endpoints, errors in AWS's words, bounded waits."""

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from contract.errors import CloudError

CONNECT_SECONDS = 5
READ_SECONDS = 30
POLL_SECONDS = 0.2
SETTLE_SECONDS = 60.0
"""How long something asked for may take to be there (the rehearsal answers in milliseconds)."""
HELD_SECONDS = 40.0
"""How long a delete waits for what still holds the thing, before it names the holder."""

T = TypeVar("T")


class AwsError(CloudError):
    """AWS's own refusal.

    Attributes:
        code: AWS's error code; None when nothing answered.
    """

    def __init__(self, what: str, *, where: str | None, code: str | None, why: str, next_step: str | None) -> None:
        super().__init__(what, where=where, why=why, next_step=next_step)
        self.code = code

    @property
    def not_found(self) -> bool:
        """Whether AWS says that the thing does not exist."""
        return self.code is not None and (self.code.endswith(".NotFound") or self.code == "NoSuchEntity")


NEXT_STEPS = {
    "InsufficientInstanceCapacity": "another zone or instance type (`pulumi config set rayrig:workerType …`)",
    "Unsupported": "another zone or instance type (`pulumi config set rayrig:workerType …`)",
    "UnauthorizedOperation": "ask for the permission named above, or use other credentials",
    None: "python -m rehearsal status",
}


@contextmanager
def aws_answers(what: str) -> Iterator[None]:
    """Turns what boto raises inside into AwsError, AWS's words kept."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - the plugin starts without boto

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "Unknown"))
        raise AwsError(what, where=None, code=code, why=str(error), next_step=NEXT_STEPS.get(code)) from error
    except BotoCoreError as error:
        raise AwsError(what, where=None, code=None, why=str(error), next_step=NEXT_STEPS[None]) from error


@contextmanager
def tolerated(*codes: str, not_found: bool = False) -> Iterator[None]:
    """Passes over AWS's refusals that say that what was asked for is so already."""
    try:
        yield
    except AwsError as error:
        if error.code not in codes and not (not_found and error.not_found):
            raise


@functools.cache
def boto_session(credentials: tuple[tuple[str, str], ...]) -> Any:  # noqa: ANN401 - boto comes without types
    """One boto3 session per set of credentials: it reads its service models once, a quarter of a second each."""
    import boto3  # noqa: PLC0415 - the plugin starts without boto

    return boto3.session.Session(**dict(credentials))


class Session:
    """Calls to one account of one rehearsal, in one region.

    Args:
        endpoints: service name to URL; a service that is missing cannot be called.
        account_id: the account, for ARNs.
        region: the region of calls.
        default_tags: tags that the provider adds to everything.
        max_attempts: most tries of one call.
        credentials: boto's names of explicit credentials or profile; empty for the shell's own.
    """

    def __init__(
        self,
        *,
        endpoints: Mapping[str, str],
        account_id: str,
        region: str,
        default_tags: Mapping[str, str],
        max_attempts: int,
        credentials: Mapping[str, str],
    ) -> None:
        self.account_id = account_id
        self.region = region
        self.default_tags = dict(default_tags)
        self.partition = "aws"
        self.deadline_seconds: float | None = None
        self.cancelled = threading.Event()
        self._endpoints = dict(endpoints)
        self._max_attempts = max_attempts
        self._credentials = dict(credentials)
        self._clients: dict[tuple[str, str, int], Any] = {}
        self._lock = threading.Lock()

    def within(self, *, region: str, deadline_seconds: float | None) -> "Session":
        """The same session for one resource: its region, and the person's own deadline for it, in seconds."""
        other = Session(
            endpoints=self._endpoints,
            account_id=self.account_id,
            region=region,
            default_tags=self.default_tags,
            max_attempts=self._max_attempts,
            credentials=self._credentials,
        )
        other._clients, other._lock, other.cancelled = self._clients, self._lock, self.cancelled
        other.deadline_seconds = deadline_seconds
        return other

    def arn(self, service: str, resource: str, *, regional: bool = True) -> str:
        """The ARN of a resource of this account."""
        region = self.region if regional else ""
        return f"arn:{self.partition}:{service}:{region}:{self.account_id}:{resource}"

    def client(self, service: str, *, attempts: int | None = None) -> Any:  # noqa: ANN401 - boto's clients
        """A boto3 client; `attempts` overrides how often a call is tried.

        Raises:
            CloudError: the configuration names no endpoint for the service.
        """
        if service not in self._endpoints:
            raise CloudError(
                f"the aws provider has no endpoint for {service}",
                why="in rehearsal no call may reach AWS itself",
                next_step=f"add {service} to the provider's `endpoints`",
            )
        key = (service, self.region, attempts or self._max_attempts)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._make(service, key[2])
            return self._clients[key]

    def _make(self, service: str, attempts: int) -> Any:  # noqa: ANN401 - boto's clients
        from botocore.config import Config  # noqa: PLC0415 - the plugin starts without boto

        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": attempts},
            max_pool_connections=32,
            proxies={},
        )
        with aws_answers(f"cannot use {service}"):
            return boto_session(tuple(sorted(self._credentials.items()))).client(
                service, region_name=self.region, endpoint_url=self._endpoints[service], config=config
            )

    def ec2(self, operation: str, **params: Any) -> Any:  # noqa: ANN401 - boto's answers
        """One EC2 call by boto's method name; raises AwsError in AWS's words."""
        return self.call("ec2", operation, **params)

    def iam(self, operation: str, **params: Any) -> Any:  # noqa: ANN401 - boto's answers
        """One IAM call by boto's method name; raises AwsError in AWS's words."""
        return self.call("iam", operation, **params)

    def call(self, service: str, operation: str, *, attempts: int | None = None, **params: Any) -> Any:  # noqa: ANN401
        """One call by boto's method name; raises AwsError in AWS's words."""
        client = self.client(service, attempts=attempts)
        with aws_answers(f"AWS refused {operation}"):
            return getattr(client, operation)(**params)

    def wait(self, what: str, seen: Callable[[], T | None], *, seconds: float = SETTLE_SECONDS) -> T:
        """Asks until `seen` gives something.

        Args:
            what: what is waited for, for the message.
            seen: gives None as long as it is not there.
            seconds: the deadline where the person set none (customTimeouts).

        Raises:
            CloudError: the deadline passed.
        """
        limit = self.deadline_seconds or seconds
        end = time.monotonic() + limit
        while True:
            found = seen()
            if found is not None:
                return found
            if time.monotonic() >= end:
                raise CloudError(f"{what}: not there after {limit:.0f} s")
            self._pause(what)

    def delete_held(self, what: str, delete: Callable[[], object], holders: Callable[[], list[str]]) -> None:
        """Deletes what may still be held for a moment by things that are being ended.

        Args:
            what: what is deleted, for the message.
            delete: the call; tried again on DependencyViolation until the deadline.
            holders: names what holds it.

        Raises:
            CloudError: it is held after the deadline; the message names the holders.
            AwsError: any other refusal.
        """
        limit = self.deadline_seconds or HELD_SECONDS
        end = time.monotonic() + limit
        while True:
            try:
                delete()
            except AwsError as failure:
                if failure.not_found:
                    return
                if failure.code != "DependencyViolation":
                    raise
                if time.monotonic() >= end:
                    named = ", ".join(holders()) or "something that this account cannot list"
                    raise CloudError(
                        f"{what} is still in use after {limit:.0f} s",
                        why=f"held by {named}. {failure.why}",
                        next_step="end what holds it, then run the same command again",
                    ) from failure
            else:
                return
            self._pause(what)

    def _pause(self, what: str) -> None:
        if self.cancelled.wait(POLL_SECONDS):
            raise CloudError(f"{what}: the wait was cancelled", next_step="run the same command again")
