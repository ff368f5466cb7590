"""Submission against a real Ray head with its Jobs API, started here on ports and folders of its own."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from contract.errors import JobError
from contract.exit_codes import ExitCode
from jobs.catalog import Entry
from jobs.client import JobClient, JobState
from jobs.follow import Connect, Follower, Limits
from jobs.submission import Followed, Request, submit_and_follow
from jobs.train.config import JobConfig, Needs
from jobs.tunnel import Dashboard

TOKEN = "0123456789abcdef" * 4

HEAD = """
import sys, ray
ray.init(address="local", num_cpus=1, num_gpus=0, include_dashboard=True, dashboard_host="127.0.0.1",
         dashboard_port=int(sys.argv[1]), _node_ip_address="127.0.0.1", _temp_dir=sys.argv[2], log_to_driver=False)
print("up", flush=True)
sys.stdin.read()
ray.shutdown()
"""

SAMPLE = """
import argparse, json, sys, time
parser = argparse.ArgumentParser()
for name in ("--run-uri", "--config", "--context"):
    parser.add_argument(name)
config = json.loads(parser.parse_args().config)
print("iter    1  steps 10", flush=True)
for line in range(config["lines"]):
    print(f"line {line}", flush=True)
    time.sleep(config["pause"])
sys.exit(config["code"])
"""


class SampleConfig(JobConfig):
    lines: int = 3
    pause: float = 0.0
    code: int = 0
    gpus: int = 0

    def needs(self) -> Needs:
        return Needs(runners=0, gpus=self.gpus)


ENTRY = Entry(name="sample", summary="", module="sample_job", config="unused:unused", places="on the head")


class Head:
    def __init__(self, process: subprocess.Popen[str], dashboard: Dashboard) -> None:
        self.process = process
        self.dashboard = dashboard

    @contextmanager
    def connect(self) -> Iterator[JobClient]:
        yield JobClient(self.dashboard)

    def end(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    # Ray's sockets have paths of at most 107 bytes: pytest's own folders are too deep.
    with tempfile.TemporaryDirectory(prefix="rrj-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), _free_port()
        (folder / "sample_job.py").write_text(SAMPLE)
        (folder / "token").write_text(TOKEN)
        environ = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        environ |= {
            "PYTHONPATH": name,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        with (folder / "head.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", HEAD, str(port), str(folder / "ray")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environ,
            )
        running = Head(process, Dashboard(url=f"http://127.0.0.1:{port}", token=TOKEN))
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n", (folder / "head.log").read_text()
            yield running
        finally:
            running.end()


class Submission:
    """One call of submit_and_follow and what it said."""

    def __init__(self, connect: Connect, submission_id: str, **settings: float) -> None:
        self.log = ""
        self.said: list[str] = []
        self._connect = connect
        self.request = Request(
            entry=ENTRY,
            config=SampleConfig.model_validate(settings),
            settings=SampleConfig.model_validate(settings).model_dump(),
            submission_id=submission_id,
            run_uri=f"file:///nowhere/{submission_id}",
            context={},
        )

    def write(self, text: str) -> None:
        self.log += text

    def run(self, *, detach: bool = False, limits: Limits | None = None) -> Followed:
        return submit_and_follow(
            self.request,
            self._connect,
            inventory=None,
            detach=detach,
            limits=limits or Limits(),
            write=self.write,
            say=self.said.append,
            started=time.monotonic(),
        )


def _exit_code(followed: Followed) -> int:
    assert followed.outcome is not None
    return followed.outcome.exit_code


def _wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        threading.Event().wait(0.1)


def test_a_wrong_token_is_named(head: Head) -> None:
    with pytest.raises(JobError, match="refused the token"):
        JobClient(Dashboard(url=head.dashboard.url, token="wrong" * 8))


def test_success_is_0_and_every_line_comes_once(head: Head) -> None:
    submission = Submission(head.connect, "good", lines=30)
    followed = submission.run(limits=Limits(total_seconds=60))
    assert _exit_code(followed) == ExitCode.SUCCESS
    assert [line for line in submission.log.splitlines() if line.startswith("line ")] == [
        f"line {i}" for i in range(30)
    ]
    assert followed.outcome is not None
    assert followed.outcome.first_metric_seconds is not None


def test_the_same_id_twice_is_one_job(head: Head) -> None:
    first = Submission(head.connect, "twice", lines=1)
    assert first.run(detach=True).outcome is None
    second = Submission(head.connect, "twice", lines=2)
    followed = second.run(limits=Limits(total_seconds=60))
    assert _exit_code(followed) == ExitCode.SUCCESS
    assert "line 0" in second.log
    assert "line 1" not in second.log
    assert any("settings of its first submission" in line for line in second.said)
    assert followed.run_uri == "file:///nowhere/twice"


def test_failure_is_the_drivers_exit_code(head: Head) -> None:
    assert _exit_code(Submission(head.connect, "bad", code=3).run(limits=Limits(total_seconds=60))) == 3


def test_what_can_never_run_is_refused_before_submission(head: Head) -> None:
    submission = Submission(head.connect, "greedy", gpus=8)
    with pytest.raises(JobError, match=r"needs 8 GPUs, the cluster has 0"):
        submission.run()
    assert JobClient(head.dashboard).find("greedy") is None


def test_pending_is_bounded(head: Head) -> None:
    client = JobClient(head.dashboard)
    client._ray.submit_job(submission_id="waits", entrypoint="true", entrypoint_num_gpus=1)
    follower = Follower(
        head.connect,
        "waits",
        write=lambda _: None,
        say=lambda _: None,
        limits=Limits(pending_seconds=2),
        started=time.monotonic(),
    )
    with pytest.raises(JobError, match="still pending after"):
        follower.run(client)


def test_stopped_is_130(head: Head) -> None:
    submission = Submission(head.connect, "stopped", lines=600, pause=0.1)
    client = JobClient(head.dashboard)

    def stop_once_running() -> None:
        _wait_for(lambda: "line 1" in submission.log)
        client.stop("stopped")

    stopper = threading.Thread(target=stop_once_running)
    stopper.start()
    followed = submission.run(limits=Limits(total_seconds=60))
    stopper.join()
    assert followed.outcome is not None
    assert followed.outcome.state is JobState.STOPPED
    assert followed.outcome.exit_code == ExitCode.STOPPED


class Proxy:
    """A TCP relay that can be cut, standing for the tunnel."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        self._listener.close()
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_the_log_survives_a_disconnect(head: Head) -> None:
    port = int(head.dashboard.url.rpartition(":")[2])
    proxies: list[Proxy] = []

    @contextmanager
    def connect() -> Iterator[JobClient]:
        proxies.append(Proxy(port))
        try:
            yield JobClient(Dashboard(url=f"http://127.0.0.1:{proxies[-1].port}", token=TOKEN))
        finally:
            proxies[-1].cut()

    submission = Submission(connect, "cut", lines=40, pause=0.1)

    def cut_in_the_middle() -> None:
        _wait_for(lambda: "line 3" in submission.log)
        proxies[0].cut()

    cutter = threading.Thread(target=cut_in_the_middle)
    cutter.start()
    followed = submission.run(limits=Limits(total_seconds=60))
    cutter.join()
    assert _exit_code(followed) == ExitCode.SUCCESS
    assert [line for line in submission.log.splitlines() if line.startswith("line ")] == [
        f"line {i}" for i in range(40)
    ]
    assert len(proxies) > 1
    assert "connected again" in submission.said


def test_lost_is_75(head: Head) -> None:
    """Last: it ends the head."""
    submission = Submission(head.connect, "lost", lines=600, pause=0.1)

    def end_once_running() -> None:
        _wait_for(lambda: "line 1" in submission.log)
        head.end()

    ender = threading.Thread(target=end_once_running)
    ender.start()
    followed = submission.run(limits=Limits(lost_seconds=3))
    ender.join()
    assert followed.outcome is not None
    assert json.dumps(submission.said)
    assert followed.outcome.exit_code == ExitCode.LOST, submission.said
