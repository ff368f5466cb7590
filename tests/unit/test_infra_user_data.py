import datetime as dt
import hashlib
import json
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from contract import names
from infra import user_data
from infra.user_data import BootSettings, boot_settings, render

ROLE = {"AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "secret/key+x", "Token": "a-session-token=="}
INSTANCE, ROLE_ID, CLUSTER, BUCKET, REGION = "i-0abc", "AROAEXAMPLE", "dev-a1b2c3", "my-results", "eu-west-1"
TAG_PATH = f"meta-data/tags/instance/{names.TAG_DEADLINE}"
HOST_KEY = "ssh-ed25519 AAAAhostkey root@node\n"


@dataclass
class Fake:
    """The metadata service and S3, on one port.

    Attributes:
        metadata: answers by path; a missing one is 404.
        refusals: HTTP codes that the next PUTs get, each with a body.
        broken: how many metadata calls fail with 500 first.
        late: how many times a path is not there yet.
    """

    metadata: dict[str, str]
    refusals: list[int] = field(default_factory=list)
    broken: int = 0
    late: dict[str, int] = field(default_factory=dict)
    puts: list[dict[str, Any]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    token_problems: list[str] = field(default_factory=list)


@contextmanager
def serve(fake: Fake) -> Iterator[str]:  # noqa: C901 - one handler for two services
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, code: int, body: bytes = b"") -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path == "/latest/api/token":
                if fake.broken:
                    fake.broken -= 1
                    return self.answer(500)
                if self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") is None:
                    fake.token_problems.append("token asked for without a lifetime")
                return self.answer(200, b"the-token")
            fake.puts.append({"path": self.path, "headers": dict(self.headers), "body": body})
            if fake.refusals:
                return self.answer(fake.refusals.pop(0), b"<Error>words of S3</Error>")
            if self.path in fake.objects:
                return self.answer(412)
            fake.objects[self.path] = body
            return self.answer(200)

        def do_GET(self) -> None:
            if self.headers.get("X-aws-ec2-metadata-token") != "the-token":
                fake.token_problems.append(self.path)
                return self.answer(401)
            path = self.path.removeprefix("/latest/")
            if fake.late.get(path, 0) > 0:
                fake.late[path] -= 1
                return self.answer(404)
            found = fake.metadata.get(path)
            return self.answer(404) if found is None else self.answer(200, found.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Node:
    """A pretend machine: its files, and what was called on it."""

    root: Path
    fake: Fake
    url: str

    def settings(self, **changes: Any) -> BootSettings:
        base = boot_settings(region=REGION, bucket=BUCKET, cluster_id=CLUSTER, role_id=ROLE_ID, endpoint_url=self.url)
        paths = {
            "imds_url": self.url,
            "host_key_file": str(self.root / "host_key.pub"),
            "state_dir": str(self.root / "state"),
            "unit_dir": str(self.root),
            "run_dir": str(self.root),
            "publish_seconds": 10,
        }
        return BootSettings(**{**vars(base), **paths, **changes})

    def boot(self, *arguments: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        script = self.root / "part-001"
        script.write_text(render(self.settings(**changes)))
        environment = {"PATH": f"{self.root / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin"}
        return subprocess.run(
            [sys.executable, "-I", str(script), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        log = self.root / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def forget_calls(self) -> None:
        (self.root / "calls").unlink(missing_ok=True)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    (tmp_path / "bin").mkdir()
    for name in ("systemctl", "systemd-run"):
        stub = tmp_path / "bin" / name
        stub.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\n')
        stub.chmod(stub.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "host_key.pub").write_text(HOST_KEY)
    fake = Fake(
        metadata={
            "meta-data/instance-id": INSTANCE,
            "meta-data/iam/security-credentials/": "node-1",
            "meta-data/iam/security-credentials/node-1": json.dumps(ROLE),
            TAG_PATH: "2099-01-02T03:04:05Z",
        }
    )
    with serve(fake) as url:
        yield Node(tmp_path, fake, url)


OBJECT = f"/{BUCKET}/clusters/{CLUSTER}/host-keys/{ROLE_ID}%3A{INSTANCE}"


def arm(moment: str) -> str:
    unit = "--unit=rayrig-deadline-poweroff"
    return f"systemd-run {unit} --on-calendar={moment} UTC --timer-property=AccuracySec=1s systemctl poweroff"


def test_first_boot_publishes_the_host_key_arms_the_end_and_stills_apt(node: Node) -> None:
    done = node.boot()
    assert done.returncode == 0, done.stdout + done.stderr
    assert node.fake.objects == {OBJECT: HOST_KEY.encode()}
    assert not node.fake.token_problems
    assert node.calls == [
        "systemctl enable --now --no-block rayrig-deadline.timer",
        arm("2099-01-02 03:04:05"),
        "systemctl mask --now --no-block apt-daily.timer apt-daily-upgrade.timer",
        "systemctl mask apt-daily.service apt-daily-upgrade.service unattended-upgrades.service",
    ]
    service = (node.root / "rayrig-deadline.service").read_text()
    assert f"python3 {node.root}/state/boot.py watch" in service
    assert "OnUnitActiveSec=60" in (node.root / "rayrig-deadline.timer").read_text()
    assert (node.root / "state" / "boot.py").read_text() == (node.root / "part-001").read_text()


def test_the_signature_is_botocores(node: Node) -> None:
    node.boot()
    (put,) = node.fake.puts
    headers = {name.lower(): value for name, value in put["headers"].items()}
    signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    assert {"host", "if-none-match", "x-amz-security-token", "x-amz-content-sha256", "x-amz-date"} <= set(signed)
    assert headers["if-none-match"] == "*"
    assert headers["x-amz-content-sha256"] == hashlib.sha256(put["body"]).hexdigest()
    request = AWSRequest(
        method="PUT",
        url=f"{node.url}{put['path']}",
        data=put["body"],
        headers={name: headers[name] for name in signed},
    )
    request.context["timestamp"] = headers["x-amz-date"]
    signer = S3SigV4Auth(Credentials(ROLE["AccessKeyId"], ROLE["SecretAccessKey"], ROLE["Token"]), "s3", REGION)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    assert headers["authorization"].endswith(f"Signature={signer.signature(text, request)}")


def test_on_aws_the_bucket_is_a_virtual_host_over_tls() -> None:
    scope: dict[str, Any] = {"__name__": "boot"}
    settings = boot_settings(region=REGION, bucket=BUCKET, cluster_id=CLUSTER, role_id=ROLE_ID, endpoint_url=None)
    exec(compile(render(settings), "boot", "exec"), scope)  # noqa: S102 - our own script
    request = scope["signed_put"]("a:b", b"x", ROLE, dt.datetime.now(dt.UTC))
    assert request.full_url == f"https://{BUCKET}.s3.{REGION}.amazonaws.com/a%3Ab"
    china = boot_settings(region="cn-north-1", bucket="b", cluster_id="c", role_id="r", endpoint_url=None)
    assert china.dns_suffix == "amazonaws.com.cn"


def test_refusals_and_missing_credentials_are_retried(node: Node) -> None:
    node.fake.refusals = [403, 503]
    node.fake.late = {"meta-data/iam/security-credentials/": 1, "meta-data/iam/security-credentials/node-1": 1}
    done = node.boot()
    assert done.returncode == 0, done.stdout
    assert "no role yet" in done.stdout
    assert "S3 answered 403: <Error>words of S3</Error>" in done.stdout
    assert node.fake.objects[OBJECT] == HOST_KEY.encode()


def test_publishing_has_a_deadline_and_its_failure_fails_the_boot(node: Node) -> None:
    node.fake.refusals = [403] * 100
    done = node.boot(publish_seconds=0.5)
    assert done.returncode == 1
    assert "publishing the host key failed for 0.5 s: S3 answered 403" in done.stderr
    assert "Traceback" not in done.stderr
    assert any("poweroff" in call for call in node.calls), "the end was armed before"


def test_a_key_published_before_is_left_as_it_is(node: Node) -> None:
    node.fake.objects[OBJECT] = b"the first"
    assert node.boot().returncode == 0
    assert node.fake.objects[OBJECT] == b"the first"


def test_a_moved_deadline_moves_the_timer_and_an_unmoved_one_does_nothing(node: Node) -> None:
    node.boot()
    node.forget_calls()
    assert node.boot("watch").returncode == 0
    assert node.calls == []
    node.fake.metadata[TAG_PATH] = "2099-01-02T07:00:00+00:00"
    node.boot("watch")
    assert node.calls == [
        "systemctl stop rayrig-deadline-poweroff.timer",
        arm("2099-01-02 07:00:00"),
    ]
    assert not node.fake.puts[1:], "the watch publishes nothing"


def test_past_the_deadline_the_node_powers_off(node: Node) -> None:
    node.boot()
    node.forget_calls()
    node.fake.metadata[TAG_PATH] = "2020-01-01T00:00:00Z"
    node.boot("watch")
    assert node.calls == ["systemctl poweroff"]


def test_without_the_metadata_service_the_last_deadline_holds(node: Node) -> None:
    node.boot()
    node.forget_calls()
    (node.root / "rayrig-deadline-armed").unlink()  # as after a reboot, which clears /run
    node.fake.broken = 10
    node.boot("watch")
    assert node.calls == [arm("2099-01-02 03:04:05")]


@pytest.mark.parametrize("tag", [None, "", "tomorrow"])
def test_a_node_that_never_learns_its_deadline_gets_an_end_of_its_own(node: Node, tag: str | None) -> None:
    if tag is None:
        del node.fake.metadata[TAG_PATH]
    else:
        node.fake.metadata[TAG_PATH] = tag
    assert node.boot(grace_seconds=3600).returncode == 0
    assert any("--on-calendar=" in call for call in node.calls)
    node.forget_calls()
    node.boot("watch", grace_seconds=-1)
    assert node.calls == ["systemctl poweroff"]
    node.fake.metadata[TAG_PATH] = "2099-01-02T03:04:05Z"
    node.forget_calls()
    node.boot("watch", grace_seconds=-1)
    assert "--on-calendar=2099-01-02 03:04:05 UTC" in node.calls[-1]


def test_user_data_is_small_a_script_and_without_secret_or_deadline() -> None:
    settings = boot_settings(
        region=REGION, bucket="b" * 63, cluster_id="c" * 41, role_id="AROA" + "X" * 17, endpoint_url=None
    )
    text = render(settings)
    assert text == render(settings)
    assert text.startswith("#!/usr/bin/env python3\n")
    assert len(text.encode()) < user_data.MAX_BYTES
    assert "@SETTINGS@" not in text
    assert "deadline" not in json.dumps(vars(settings)).replace(names.TAG_DEADLINE, "").replace("deadline_tag", "")
