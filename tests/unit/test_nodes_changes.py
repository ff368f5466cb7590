import json
from pathlib import Path

from rehearsal.nodes.changes import RequestWatch


def line(service: str, action: str, *, error: str | None = None, **params: str) -> str:
    return json.dumps({"service": service, "action": action, "params": params, "error": error}) + "\n"


def test_reads_change_nothing_and_writes_do(tmp_path: Path):
    log = tmp_path / "requests.jsonl"
    watch = RequestWatch(log)
    assert not watch.read().any
    log.write_text(line("ec2", "DescribeInstances") + line("s3", "PUT /bucket/key") + line("iam", "CreateRole"))
    assert not watch.read().any
    with log.open("a") as file:
        file.write(line("ec2", "RunInstances"))
    assert watch.read().any
    assert not watch.read().any


def test_a_half_written_line_waits_for_its_end(tmp_path: Path):
    log = tmp_path / "requests.jsonl"
    watch = RequestWatch(log)
    whole = line("ec2", "TerminateInstances")
    log.write_text(whole[:20])
    assert not watch.read().any
    log.write_text(whole)
    assert watch.read().any


def test_reboots_are_told_by_instance_refused_ones_are_not(tmp_path: Path):
    log = tmp_path / "requests.jsonl"
    log.write_text(
        line("ec2", "RebootInstances", **{"InstanceId.1": "i-1", "InstanceId.2": "i-2"})
        + line("ec2", "RebootInstances", error="InvalidInstanceID.NotFound", **{"InstanceId.1": "i-3"})
    )
    assert RequestWatch(log).read().reboots == {"i-1", "i-2"}
