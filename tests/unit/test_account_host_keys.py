"""The host key a node publishes: what counts as one, and what is said when none comes."""

import base64
import struct
from collections.abc import Iterator

import pytest
from botocore.stub import Stubber
from in_moto import ANY_IMAGE, REGION, aws_client, in_moto

from account.host_keys import Publisher, parse_host_key, wait_for_host_key
from account.patience import Patience
from contract.errors import UnreachableError


def ssh_key(kind: str, inner: str | None = None) -> str:
    name = (inner or kind).encode()
    blob = struct.pack(">I", len(name)) + name + struct.pack(">I", 32) + bytes(32)
    return f"{kind} {base64.b64encode(blob).decode()}"


class Clock:
    """Time that only passes when somebody pauses."""

    def __init__(self) -> None:
        self.now = 100.0

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def patience(self, deadline: float, interval: float = 1.0) -> Patience:
        return Patience(deadline_seconds=deadline, interval_seconds=interval, pause=self.pause, clock=lambda: self.now)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[object, object, Publisher]]:
    with in_moto(monkeypatch):
        s3, ec2 = aws_client("s3"), aws_client("ec2")
        s3.create_bucket(Bucket="results", CreateBucketConfiguration={"LocationConstraint": REGION})
        launched = ec2.run_instances(ImageId=ANY_IMAGE, MinCount=1, MaxCount=1, InstanceType="m7i.large")
        publisher = Publisher(
            name="worker-1",
            instance_id=launched["Instances"][0]["InstanceId"],
            role_id="AROA1",
            cluster_id="rr-x-1",
            bucket="results",
        )
        yield s3, ec2, publisher


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
def test_a_key_is_taken_without_its_comment(kind: str) -> None:
    assert parse_host_key(f"{ssh_key(kind)} root@ip-10-77-0-4\n") == ssh_key(kind)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 lines"),
        (f"{ssh_key('ssh-ed25519')}\n{ssh_key('ssh-ed25519')}", "2 lines"),
        ("ssh-ed25519", "not 'type base64'"),
        (ssh_key("ssh-dss"), "unknown key type"),
        ("ssh-ed25519 ????", "not base64"),
        ("ssh-ed25519 AAA=", "not base64"),
        (ssh_key("ssh-ed25519", inner="ssh-rsa"), "another type"),
        ("<?xml version='1.0'?><Error/>", "unknown key type"),
    ],
)
def test_what_is_no_key_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("?", r"\?")):
        parse_host_key(text)


def test_it_waits_until_the_key_is_there(aws) -> None:
    s3, ec2, publisher = aws
    clock = Clock()
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            s3.put_object(Bucket="results", Key=publisher.key, Body=ssh_key("ssh-ed25519").encode() + b" root@node\n")

    found = wait_for_host_key(s3, ec2, publisher, patience=clock.patience(60), report=report)
    assert found == ssh_key("ssh-ed25519")
    assert clock.now == pytest.approx(103)
    assert publisher.key == f"clusters/rr-x-1/host-keys/AROA1:{publisher.instance_id}"


def test_nothing_published_names_state_and_causes(aws) -> None:
    s3, ec2, publisher = aws
    with pytest.raises(UnreachableError) as caught:
        wait_for_host_key(s3, ec2, publisher, patience=Clock().patience(60), report=lambda _: None)
    text = str(caught.value)
    for part in ("worker-1", publisher.instance_id, "60 s", "running", "user data", "role", "get-console-output"):
        assert part in text
    assert "\n" not in text


def test_an_ended_instance_is_said_at_once(aws) -> None:
    s3, ec2, publisher = aws
    ec2.terminate_instances(InstanceIds=[publisher.instance_id])
    clock = Clock()
    with pytest.raises(UnreachableError, match="terminated before it published"):
        wait_for_host_key(s3, ec2, publisher, patience=clock.patience(60), report=lambda _: None)
    assert clock.now == 100


def test_a_published_thing_that_is_no_key_is_refused(aws) -> None:
    s3, ec2, publisher = aws
    s3.put_object(Bucket="results", Key=publisher.key, Body=b"hello")
    with pytest.raises(UnreachableError, match="not an SSH host key"):
        wait_for_host_key(s3, ec2, publisher, patience=Clock().patience(60), report=lambda _: None)


def test_only_telling_lines_of_the_console_are_shown(aws) -> None:
    s3, ec2, publisher = aws
    lines = ["NX protection: active", "\x1b[0mcloud-init[12]: rayrig: S3 answers 403 AccessDenied", "login:"]
    with Stubber(ec2) as stub:
        stub.add_response("describe_instances", {"Reservations": []})
        stub.add_response("get_console_output", {"Output": "\n".join(lines)})
        with pytest.raises(UnreachableError) as caught:
            wait_for_host_key(s3, ec2, publisher, patience=Clock().patience(2), report=lambda _: None)
    assert "its console says: [0mcloud-init[12]: rayrig: S3 answers 403 AccessDenied. Next:" in str(caught.value)
    assert "EC2 does not know the instance" in str(caught.value)
