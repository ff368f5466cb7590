"""The SSH host key that a node publishes itself, waited for and checked: no trust on first use."""

import base64
import binascii
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from account.clients import AwsError, aws_errors
from account.instances import InstanceFacts, describe_instance
from account.patience import Patience
from contract.errors import UnreachableError
from contract.names import host_key_object

KEY_TYPES = frozenset({"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"})
MAX_KEY_BYTES = 2048
"""A 4096-bit RSA key with a comment takes some 760 bytes; more is no host key."""
INSTANCE_LOOK_SECONDS = 5.0
REPORT_SECONDS = 5
"""How often the time waited is told."""
CONSOLE_LINES = 3
CONSOLE_LINE_CHARACTERS = 160
_TELLING_LINE = re.compile(r"rayrig|cloud-init|user.?data|traceback|error|fail", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """Which node publishes, and where.

    Attributes:
        name: the node's name, for messages.
        role_id: unique id of the instance role (AROA…).
    """

    name: str
    instance_id: str
    role_id: str
    cluster_id: str
    bucket: str

    @property
    def key(self) -> str:
        """The object's key; the role may write only the path that ends with its own user id."""
        return host_key_object(self.cluster_id, f"{self.role_id}:{self.instance_id}")


def parse_host_key(text: str) -> str:
    """Checks one line of an SSH public key and returns its `type base64` without the comment.

    Raises:
        ValueError: not one well-formed line of a known type; the message says what is wrong.
    """
    lines = text.strip().splitlines()
    if len(lines) != 1:
        raise ValueError(f"{len(lines)} lines instead of one")
    words = lines[0].split()
    if len(words) < 2:  # noqa: PLR2004 - type and key
        raise ValueError("not 'type base64'")
    kind, encoded = words[0], words[1]
    if kind not in KEY_TYPES:
        raise ValueError(f"unknown key type {kind[:40]!r}")
    try:
        blob = base64.b64decode(encoded, validate=True)
        (length,) = struct.unpack_from(">I", blob)
    except (binascii.Error, struct.error) as error:
        raise ValueError(f"the key is not base64 of an SSH key ({error})") from error
    if blob[4 : 4 + length] != kind.encode():
        raise ValueError("the key inside is of another type than the line says")
    return f"{kind} {encoded}"


def wait_for_host_key(
    s3: Any,  # noqa: ANN401 - a boto client
    ec2: Any,  # noqa: ANN401 - a boto client
    publisher: Publisher,
    *,
    patience: Patience,
    report: Callable[[str], None],
) -> str:
    """Waits until the node has published its host key; returns `type base64`.

    Args:
        s3: an S3 client of the region.
        ec2: an EC2 client of the region.
        publisher: the node.
        patience: how long to wait.
        report: told now and then what is waited for.

    Raises:
        UnreachableError: the instance has ended, nothing was published in time, or what was published is no key.
        CloudError: AWS refused, or did not answer.
    """
    facts: InstanceFacts | None = None
    looked = -INSTANCE_LOOK_SECONDS
    for waited in patience.rounds():
        text = _read(s3, publisher)
        if text is not None:
            return _checked(text, publisher)
        if waited - looked >= INSTANCE_LOOK_SECONDS:
            looked = waited
            facts = describe_instance(ec2, publisher.instance_id)
            if facts is not None and facts.state not in {"pending", "running"}:
                raise UnreachableError(
                    f"the instance is {facts.state} before it published its host key",
                    where=_where(publisher),
                    why=facts.reason or "EC2 gives no reason",
                    next_step="pulumi up again replaces an ended instance; a stopped one has to be started or ended",
                )
        report(f"first boot: waiting for its host key ({waited - waited % REPORT_SECONDS:.0f} s)")
    raise _never_published(ec2, publisher, facts, patience.deadline_seconds)


def _read(s3: Any, publisher: Publisher) -> str | None:  # noqa: ANN401 - a boto client
    try:
        with aws_errors("cannot read the node's host key", where=f"s3://{publisher.bucket}/{publisher.key}"):
            body: bytes = s3.get_object(Bucket=publisher.bucket, Key=publisher.key)["Body"].read(MAX_KEY_BYTES + 1)
    except AwsError as error:
        if error.code == "NoSuchKey":
            return None
        raise
    return body.decode("ascii", errors="replace")


def _checked(text: str, publisher: Publisher) -> str:
    try:
        if len(text) > MAX_KEY_BYTES:
            raise ValueError("it is too long")  # noqa: TRY301 - told with the others below
        return parse_host_key(text)
    except ValueError as error:
        raise UnreachableError(
            "what the node published is not an SSH host key",
            where=_where(publisher),
            why=f"s3://{publisher.bucket}/{publisher.key}: {error}",
            next_step=f"end the instance {publisher.instance_id} and `pulumi up` again",
        ) from error


def _never_published(
    ec2: Any,  # noqa: ANN401 - a boto client
    publisher: Publisher,
    facts: InstanceFacts | None,
    seconds: float,
) -> UnreachableError:
    state = f"EC2 says {facts.state}" if facts else "EC2 does not know the instance"
    causes = "user data that did not run, a role that may not write there, or no route to S3"
    return UnreachableError(
        f"published no host key within {seconds:.0f} s of waiting",
        where=_where(publisher),
        why=f"{state}; the usual causes are {causes}{_console(ec2, publisher)}",
        next_step=(
            f"aws ec2 get-console-output --latest --instance-id {publisher.instance_id}; then `pulumi up` goes on"
        ),
    )


def _console(ec2: Any, publisher: Publisher) -> str:  # noqa: ANN401 - a boto client
    """What the console says of the first boot, where it can be had; a hint only, so a refusal is no failure."""
    try:
        with aws_errors("cannot read the console", where=publisher.instance_id):
            output = ec2.get_console_output(InstanceId=publisher.instance_id).get("Output") or ""
    except AwsError:
        return ""
    lines = ["".join(filter(str.isprintable, line)).strip() for line in output.splitlines()]
    telling = [line[:CONSOLE_LINE_CHARACTERS] for line in lines if _TELLING_LINE.search(line)][-CONSOLE_LINES:]
    return f"; its console says: {' | '.join(telling)}" if telling else ""


def _where(publisher: Publisher) -> str:
    return f"{publisher.name} ({publisher.instance_id})"
