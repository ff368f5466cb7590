"""The run directory in S3 (moto on loopback), written as a node does and read as a person's machine does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from contract.errors import JobError
from contract.inventory import Inventory
from jobs.report import make_report
from jobs.train import recorder as module
from jobs.train.recorder import CheckpointRecord, Recorder

RUN = "s3://results/runs/dev/mine"
INVENTORY = {
    "clusterId": "dev-abc",
    "stack": "dev",
    "accountId": "123456789012",
    "region": "eu-west-1",
    "availabilityZone": "eu-west-1a",
    "nodes": [
        {
            "name": "head",
            "role": "head",
            "instanceId": "i-1",
            "instanceType": "m7i.large",
            "cpuCount": 2,
            "memoryBytes": 8,
            "gpuCount": 0,
            "privateIp": "10.77.0.4",
        }
    ],
    "access": {},
    "image": {"reference": "r/x@sha256:" + "a" * 64},
    "storage": {"bucket": "results", "resultsUri": "s3://results/runs/dev", "clusterUri": "s3://results/clusters/a"},
    "deadline": "2100-01-01T00:00:00Z",
}


class Storage:
    def __init__(self) -> None:
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        self.running = True

    def client(self) -> Any:
        return boto3.client("s3", region_name="eu-west-1", endpoint_url=self.url)

    def stop(self) -> None:
        if self.running:
            self.server.stop()
            self.running = False

    def keys(self) -> list[str]:
        found = self.client().list_objects_v2(Bucket="results", Prefix="runs/dev/mine/")
        return sorted(item["Key"].removeprefix("runs/dev/mine/") for item in found.get("Contents", []))


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    # As on a node: credentials and endpoint come from the environment.
    for name, value in {"AWS_ACCESS_KEY_ID": "lab", "AWS_SECRET_ACCESS_KEY": "lab", "AWS_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(name, value)
    running = Storage()
    monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
    s3fs.S3FileSystem.clear_instance_cache()
    httpx.post(f"{running.url}/moto-api/reset").raise_for_status()
    running.client().create_bucket(Bucket="results", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    try:
        yield running
    finally:
        running.stop()


def _checkpoint(recorder: Recorder, iteration: int, *, best: bool) -> None:
    folder = recorder.new_folder()
    (folder / "inner").mkdir()
    (folder / "inner" / "weights").write_text(str(iteration))
    record = CheckpointRecord(name=f"iteration-{iteration}", iteration=iteration, env_steps=iteration, seconds=1)
    recorder.checkpoint(folder, record, best=best)


def test_a_run_is_written_to_s3_resumed_from_it_and_read_back(storage: Storage) -> None:
    recorder = Recorder(RUN)
    recorder.start({"lr": 1}, {"versions": {}})
    assert storage.keys() == ["cluster.json", "config.json"]
    recorder.metric({"iteration": 1})
    recorder.say("hello")
    for iteration, best in ((1, True), (2, False), (3, False)):
        _checkpoint(recorder, iteration, best=best)
    recorder.finish({"state": "stopped", "return": 12.5, "env_steps": 3})
    assert storage.keys() == [
        "checkpoints/best.json",
        "checkpoints/iteration-1/inner/weights",
        "checkpoints/iteration-3/inner/weights",
        "checkpoints/latest.json",
        "cluster.json",
        "config.json",
        "log",
        "metrics.jsonl",
        "summary.json",
    ]

    again = Recorder(RUN)
    resumed = again.resume()
    assert resumed is not None
    assert (resumed[0] / "inner" / "weights").read_text() == "3"
    again.finish({"state": "succeeded", "return": 13.5, "env_steps": 3})

    inventory = Inventory.model_validate(INVENTORY | {"endpoint": {"kind": "rehearsal", "url": storage.url}})
    report = make_report(
        run="mine",
        run_uri=RUN,
        inventory=inventory,
        state="SUCCEEDED",
        exit_code=0,
        message=None,
        total_seconds=1,
        first_metric_seconds=None,
    )
    assert (report.mean_return, report.env_steps, report.error) == (13.5, 3, None)
    absent = make_report(
        run="other",
        run_uri=f"{RUN}-other",
        inventory=inventory,
        state="FAILED",
        exit_code=1,
        message="killed",
        total_seconds=1,
        first_metric_seconds=None,
    )
    assert (absent.mean_return, absent.error) == (None, "killed")


def test_a_missing_bucket_is_an_error_before_training(storage: Storage) -> None:
    assert storage.running
    with pytest.raises(JobError, match="cannot write the run directory"):
        Recorder("s3://absent/runs/dev/mine").start({}, {})


def test_an_outage_does_not_stop_training_but_an_unwritten_end_is_a_failure(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FINAL_WRITE_SECONDS", 1.0)
    recorder = Recorder(RUN)
    recorder.start({}, {})
    storage.stop()
    recorder.metric({"iteration": 1})
    with pytest.raises(JobError, match="cannot finish the run directory"):
        recorder.finish({"state": "succeeded"})


def test_nothing_is_left_in_the_temporary_folder(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage.running
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    recorder = Recorder(RUN)
    _checkpoint(recorder, 1, best=True)
    recorder.finish({})
    assert list(tmp_path.iterdir()) == []
