"""Node, RayHead and RayFleet over gRPC against moto: what they learn, and how failures and cancels read."""

import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from in_moto import aws_client
from provider_over_grpc import BUCKET, HOME, Plugin, bucket_inputs, launch, refusal, running_plugin
from pulumi.runtime.proto import provider_pb2, status_pb2
from test_account_host_keys import ssh_key
from test_provider_check import FLEET, HEAD, MACHINE, NODE

from contract.errors import StepError
from contract.resources import NodeInputs, NodeOutputs, RayFleetInputs
from provider.values import UNKNOWN, from_struct


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Plugin]:
    with running_plugin(monkeypatch, tmp_path) as running:
        yield running


def stand_in(monkeypatch: pytest.MonkeyPatch, **functions: object) -> None:
    """Bootstrap in place of the real one, which needs machines; it is tested in its own room and in the lab."""
    module = types.ModuleType("bootstrap.converge")
    module.__dict__.update(functions)
    monkeypatch.setitem(sys.modules, "bootstrap.converge", module)


def prepared(inputs: NodeInputs, *, host_key: str, report: Callable[[Any], None]) -> NodeOutputs:
    report(types.SimpleNamespace(node=inputs.node.name, stage="docker", text="installing"))
    fields = {name: getattr(inputs, name) for name in NodeInputs.model_fields}
    return NodeOutputs(**fields, host_key=host_key, versions={"python": "3.13"}, stage_seconds={"docker": 1.5})


def node_inputs(instance_id: str) -> dict[str, Any]:
    return NODE | {"home": HOME, "node": MACHINE | {"instanceId": instance_id}, "bucket": BUCKET}


def test_a_node_learns_its_host_key_and_shows_its_progress(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, prepare_node=prepared)
    plugin.create("KeptBucket", bucket_inputs())
    instance = launch()
    published = f"clusters/rr-one-1/host-keys/AROA1:{instance}"
    aws_client("s3").put_object(Bucket=BUCKET, Key=published, Body=f"{ssh_key('ssh-ed25519')} root@node\n".encode())
    id_, state = plugin.create("Node", node_inputs(instance))
    assert (id_, state["hostKey"], state["stageSeconds"]) == (instance, ssh_key("ssh-ed25519"), {"docker": 1.5})
    assert "docker: installing" in plugin.display.texts(ephemeral=True)
    assert plugin.read("Node", id_, state) == state
    diff = plugin.diff("Node", state, node_inputs(instance), node_inputs(instance))
    assert diff.changes == provider_pb2.DiffResponse.DIFF_NONE
    plugin.delete("Node", id_, state)
    aws_client("ec2").terminate_instances(InstanceIds=[instance])
    assert plugin.read("Node", id_, state) is None


def test_a_read_that_ec2_refuses_is_an_error_not_an_absence(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = launch()
    state = node_inputs(instance) | {"hostKey": "k", "versions": {}, "stageSeconds": {}}
    assert plugin.read("Node", instance, state) is not None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    refusal(lambda: plugin.read("Node", instance, state))


def test_a_preview_knows_the_inputs_and_no_more(plugin: Plugin) -> None:
    inputs = node_inputs(UNKNOWN)
    id_, state = plugin.create("Node", inputs, preview=True)
    assert id_ == ""
    assert {key for key, value in state.items() if value == UNKNOWN} == {"hostKey", "versions", "stageSeconds"}
    assert state["node"]["name"] == "worker-1"
    known = node_inputs("i-1") | {"hostKey": "k", "versions": {"a": "b"}, "stageSeconds": {}}
    updated = plugin.update("Node", known, node_inputs("i-1") | {"image": UNKNOWN}, preview=True)
    assert (updated["hostKey"], updated["versions"], updated["image"]) == ("k", UNKNOWN, UNKNOWN)


def test_a_failure_of_bootstrap_is_one_paragraph_and_nothing_is_made(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise StepError("step image: no such digest", where="head", why="404", next_step="check rayrig:image")

    stand_in(monkeypatch, start_head=failing)
    error = refusal(lambda: plugin.create("RayHead", HEAD | {"home": HOME}))
    assert error.details() == "head: step image: no such digest. 404. Next: check rayrig:image"
    assert not [key for key, _ in error.trailing_metadata() if key == "grpc-status-details-bin"]


def test_a_failed_update_is_taken_up_again_even_without_a_change(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RayFleetInputs | None] = []

    def failing(inputs: RayFleetInputs, *, previous: RayFleetInputs | None, report: object) -> None:  # noqa: ARG001
        seen.append(previous)
        raise StepError("step join: no answer", where="worker-2")

    stand_in(monkeypatch, converge_fleet=failing)
    olds = FLEET | {"home": HOME}
    news = olds | {"workers": [MACHINE | {"name": "worker-2", "instanceId": "i-2"}]}
    old_state = from_struct(plugin.check("RayFleet", olds).inputs) | {
        "state": "ready",
        "provenAt": "2026-01-01T00:00:00Z",
        "versions": {},
        "stageSeconds": {},
    }
    error = refusal(lambda: plugin.update("RayFleet", old_state, news))
    assert error.details() == "worker-2: step join: no answer."
    state, inputs = init_failed(error)
    assert inputs["workers"][0]["name"] == "worker-2"
    assert state == old_state | {"incomplete": True}
    launched = launch()
    state["head"]["instanceId"] = launched
    assert plugin.read("RayFleet", "x", state) == state
    assert plugin.diff("RayFleet", state, news, news).changes == provider_pb2.DiffResponse.DIFF_SOME
    refusal(lambda: plugin.update("RayFleet", state, olds))
    assert [worker.name for worker in seen[-1].workers] == ["worker-1"]


def init_failed(error: grpc.RpcError) -> tuple[dict[str, Any], dict[str, Any]]:
    (packed,) = [value for key, value in error.trailing_metadata() if key == "grpc-status-details-bin"]
    failed = provider_pb2.ErrorResourceInitFailed()
    assert status_pb2.Status.FromString(packed).details[0].Unpack(failed)
    assert list(failed.reasons) == [error.details()]
    return from_struct(failed.properties), from_struct(failed.inputs)


def test_nodes_are_prepared_in_parallel(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(4, timeout=20)

    def meeting(inputs: Any, *, report: object) -> Any:  # noqa: ARG001
        together.wait()
        raise StepError("step x: met", where=inputs.head.name)

    stand_in(monkeypatch, start_head=meeting)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(plugin.create, "RayHead", HEAD | {"home": HOME}) for _ in range(4)]
        assert all("step x: met" in call.exception(timeout=30).details() for call in calls)


def test_a_cancel_answers_for_work_that_does_not_listen(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provider.operation.CANCEL_GRACE_SECONDS", 0.1)
    started, ended = threading.Event(), threading.Event()

    def deaf(*_: object, **__: object) -> None:
        started.set()
        ended.wait(30)

    stand_in(monkeypatch, start_head=deaf)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(plugin.create, "RayHead", HEAD | {"home": HOME})
        assert started.wait(20)
        sent = time.monotonic()
        plugin.stub.Cancel(empty_pb2.Empty())
        error = call.exception(timeout=10)
        ended.set()
    assert time.monotonic() - sent < 5
    assert error.code() is grpc.StatusCode.CANCELLED
    assert error.details() == "stopped, as asked. Next: `pulumi up` goes on from here"


def test_a_cancel_ends_the_wait_for_a_host_key(plugin: Plugin) -> None:
    plugin.create("KeptBucket", bucket_inputs())
    instance = launch()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(plugin.create, "Node", node_inputs(instance))
        deadline = time.monotonic() + 20
        while not [text for text in plugin.display.texts(ephemeral=True) if "host key" in text]:
            assert time.monotonic() < deadline
            threading.Event().wait(0.02)
        plugin.cancellation.tell()
        assert call.exception(timeout=10).code() is grpc.StatusCode.CANCELLED


def test_a_bug_of_ours_is_one_line_with_the_details_in_a_file(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    stand_in(monkeypatch, start_head=broken)
    text = refusal(lambda: plugin.create("RayHead", HEAD | {"home": HOME})).details()
    assert text.startswith("rayrig itself failed: ZeroDivisionError: division by zero")
    assert "Traceback" in (tmp_path / ".rayrig" / "logs" / "provider.log").read_text()


def test_a_state_that_cannot_be_read_says_so(plugin: Plugin) -> None:
    assert "ttlHours" in refusal(lambda: plugin.read("Cluster", "x", {"home": HOME, "stack": "one"})).details()


def test_import_and_unknown_types_are_refused(plugin: Plugin) -> None:
    assert "cannot be imported" in refusal(lambda: plugin.read("Cluster", "x", {})).details()
    assert "no resource type rayrig:index:Fence" in refusal(lambda: plugin.check("Fence", {})).details()


LATE = ("bootstrap", "bootstrap.converge", "remote", "images", "fabric", "paramiko")


def test_only_create_and_update_need_bootstrap(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LATE:
        monkeypatch.setitem(sys.modules, name, None)  # an import of it raises
    plugin.stub.Configure(provider_pb2.ConfigureRequest())
    instance = launch()
    states = {
        "Node": node_inputs(instance) | {"hostKey": "k", "versions": {}, "stageSeconds": {}},
        "RayHead": HEAD | {"home": HOME, "address": "a", "stageSeconds": {}},
        "RayFleet": FLEET
        | {"home": HOME, "state": "ready", "provenAt": "2026-01-01T00:00:00Z", "versions": {}}
        | {"address": "a", "stageSeconds": {}},
    }
    for kind, state in states.items():
        living = state | ({"head": state["head"] | {"instanceId": instance}} if "head" in state else {})
        inputs = {key: value for key, value in living.items() if key not in LEARNED}
        assert not plugin.check(kind, inputs).failures
        assert plugin.diff(kind, living, inputs, inputs).changes == provider_pb2.DiffResponse.DIFF_NONE
        assert plugin.create(kind, inputs, preview=True)
        assert plugin.read(kind, instance, living) is not None
        plugin.delete(kind, instance, living)
        refusal(lambda kind=kind, inputs=inputs, living=living: plugin.update(kind, living, inputs))


LEARNED = ("hostKey", "versions", "stageSeconds", "address", "state", "provenAt")


def test_starting_the_plugin_imports_nothing_late(tmp_path: Path) -> None:
    code = "import sys, provider.server; print(*sys.modules)"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    assert not set(LATE) & set(done.stdout.split())
