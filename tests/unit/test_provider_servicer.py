"""The engine's calls over gRPC against moto: what is made, read, renewed and refused, and how failures read."""

import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from in_moto import ANY_IMAGE, REGION, aws_client, in_moto
from moto.core import DEFAULT_ACCOUNT_ID
from pulumi.runtime.proto import engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2
from test_account_host_keys import ssh_key
from test_provider_check import FLEET, HEAD, MACHINE, NODE

from account import tagged
from contract.errors import StepError
from contract.resources import NodeInputs, NodeOutputs, RayFleetInputs
from provider import cluster, nodes
from provider.operation import Cancellation
from provider.servicer import Servicer
from provider.values import UNKNOWN, from_struct, to_struct

ROOT = Path(__file__).resolve().parents[2]
HOME = {"accountId": DEFAULT_ACCOUNT_ID, "region": REGION, "endpoint": {"kind": "aws"}}
CLUSTER = {"home": HOME, "stack": "one", "owner": "me", "ttlHours": 12}
BUCKET = "rayrig-results-test"


class EngineDisplay(engine_pb2_grpc.EngineServicer):
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def Log(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        self.lines.append(request)
        return empty_pb2.Empty()

    def texts(self, *, ephemeral: bool) -> list[str]:
        return [line.message for line in self.lines if line.ephemeral is ephemeral]


@dataclass
class Plugin:
    """The plugin as the engine meets it."""

    stub: Any
    display: EngineDisplay
    cancellation: Cancellation = field(default_factory=Cancellation)

    def check(self, kind: str, news: dict[str, Any], olds: dict[str, Any] | None = None) -> Any:
        return self.stub.Check(
            provider_pb2.CheckRequest(urn=urn(kind), olds=to_struct(olds or {}), news=to_struct(news))
        )

    def create(self, kind: str, inputs: dict[str, Any], *, preview: bool = False) -> tuple[str, dict[str, Any]]:
        checked = from_struct(self.check(kind, inputs).inputs)
        reply = self.stub.Create(
            provider_pb2.CreateRequest(urn=urn(kind), properties=to_struct(checked), preview=preview)
        )
        return reply.id, from_struct(reply.properties)

    def read(self, kind: str, id: str, state: dict[str, Any]) -> dict[str, Any] | None:  # noqa: A002
        request = provider_pb2.ReadRequest(urn=urn(kind), id=id, properties=to_struct(state), inputs=to_struct({}))
        reply = self.stub.Read(request)
        return from_struct(reply.properties) if reply.id else None

    def diff(self, kind: str, state: dict[str, Any], olds: dict[str, Any], news: dict[str, Any]) -> Any:
        checked = {key: from_struct(self.check(kind, value).inputs) for key, value in (("o", olds), ("n", news))}
        return self.stub.Diff(
            provider_pb2.DiffRequest(
                urn=urn(kind),
                id="x",
                olds=to_struct(state),
                old_inputs=to_struct(checked["o"]),
                news=to_struct(checked["n"]),
            )
        )

    def update(
        self, kind: str, state: dict[str, Any], news: dict[str, Any], *, preview: bool = False
    ) -> dict[str, Any]:
        checked = from_struct(self.check(kind, news).inputs)
        request = provider_pb2.UpdateRequest(
            urn=urn(kind), id="x", olds=to_struct(state), news=to_struct(checked), preview=preview
        )
        return from_struct(self.stub.Update(request).properties)

    def delete(self, kind: str, id: str, state: dict[str, Any]) -> None:  # noqa: A002
        self.stub.Delete(provider_pb2.DeleteRequest(urn=urn(kind), id=id, properties=to_struct(state)))


def urn(kind: str) -> str:
    return f"urn:pulumi:one::rayrig::rayrig:cluster:Nodes$rayrig:index:{kind}::x"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Plugin]:
    (tmp_path / "Pulumi.yaml").write_text("name: x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nodes, "GONE_SECONDS", 0.01)
    # moto lacks these; rayrig asks them of AWS only (test_account_tagged)
    monkeypatch.setattr(tagged, "_EC2_KINDS", tuple(kind for kind in tagged._EC2_KINDS if kind.in_rehearsal))
    monkeypatch.setattr(cluster, "SETTLE", dict.fromkeys(cluster.SETTLE, (0.2, 0.05)))
    display, cancellation = EngineDisplay(), Cancellation()
    engine = grpc.server(ThreadPoolExecutor(8))
    engine_pb2_grpc.add_EngineServicer_to_server(display, engine)
    engine_port = engine.add_insecure_port("127.0.0.1:0")
    engine.start()
    server = grpc.server(ThreadPoolExecutor(16))
    servicer = Servicer(engine_address=f"127.0.0.1:{engine_port}", version="0", cancellation=cancellation)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with in_moto(monkeypatch), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Plugin(stub=provider_pb2_grpc.ResourceProviderStub(channel), display=display, cancellation=cancellation)
    cancellation.tell()
    server.stop(0).wait()
    engine.stop(0).wait()


def launch(cluster_id: str = "rr-one-1", **tags: str) -> str:
    wanted = {"rayrig:cluster": cluster_id} | tags
    made = aws_client("ec2").run_instances(
        ImageId=ANY_IMAGE,
        MinCount=1,
        MaxCount=1,
        InstanceType="m7i.large",
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in wanted.items()]}
        ],
    )
    return made["Instances"][0]["InstanceId"]


def refusal(work: Callable[[], object]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        work()
    text = caught.value.details()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "\n" not in text
    assert "Traceback" not in text
    assert "Unexpected" not in text
    return caught.value


# Cluster


def test_a_cluster_is_named_after_its_stack_and_gets_a_deadline(plugin: Plugin) -> None:
    id_, state = plugin.create("Cluster", CLUSTER | {"stack": "Team/My_Stack." + "x" * 40})
    assert id_ == state["clusterId"]
    assert id_.startswith("rr-team-my-stack-xxxx")
    assert len(id_) <= 41
    lives = datetime.fromisoformat(state["deadline"]) - datetime.fromisoformat(state["createdAt"])
    assert lives == timedelta(hours=12)
    assert state["expired"] is False
    assert plugin.read("Cluster", id_, state) == state
    assert plugin.diff("Cluster", state, CLUSTER, CLUSTER).changes == provider_pb2.DiffResponse.DIFF_NONE


def test_the_deadline_is_read_back_from_live_instances(plugin: Plugin) -> None:
    id_, state = plugin.create("Cluster", CLUSTER)
    for tag in ("2031-01-01T00:00:00Z", "2032-01-01T02:00:00+02:00", "soon"):
        launch(id_, **{"rayrig:deadline": tag})
    ended = launch(id_, **{"rayrig:deadline": "2040-01-01T00:00:00Z"})
    aws_client("ec2").terminate_instances(InstanceIds=[ended])
    read = plugin.read("Cluster", id_, state)
    assert read is not None
    assert read["deadline"] == "2032-01-01T00:00:00Z"
    assert read["expired"] is False


def test_an_expired_cluster_is_renewed_by_the_next_up(plugin: Plugin) -> None:
    id_, state = plugin.create("Cluster", CLUSTER)
    passed = state | {"deadline": "2020-01-01T00:00:00Z"}
    alive = launch(id_)
    assert plugin.read("Cluster", id_, passed)["expired"] is False
    aws_client("ec2").terminate_instances(InstanceIds=[alive])
    expired = plugin.read("Cluster", id_, passed)
    assert expired["expired"] is True
    diff = plugin.diff("Cluster", expired, CLUSTER, CLUSTER)
    assert (diff.changes, list(diff.diffs), list(diff.replaces)) == (
        provider_pb2.DiffResponse.DIFF_SOME,
        ["expired"],
        [],
    )
    assert plugin.update("Cluster", expired, CLUSTER, preview=True)["deadline"] == UNKNOWN
    renewed = plugin.update("Cluster", expired, CLUSTER)
    assert datetime.fromisoformat(renewed["deadline"]) > datetime.now(UTC) + timedelta(hours=11)
    assert renewed["expired"] is False
    assert (renewed["clusterId"], renewed["createdAt"]) == (id_, state["createdAt"])


def test_a_longer_ttl_moves_the_deadline_and_a_shorter_one_does_not(plugin: Plugin) -> None:
    _, state = plugin.create("Cluster", CLUSTER)
    longer = plugin.update("Cluster", state, CLUSTER | {"ttlHours": 24})
    assert plugin.update("Cluster", state, CLUSTER | {"ttlHours": 24}, preview=True) == longer
    created = datetime.fromisoformat(state["createdAt"])
    assert datetime.fromisoformat(longer["deadline"]) - created == timedelta(hours=24)
    shorter = plugin.update("Cluster", longer, CLUSTER | {"ttlHours": 1})
    assert shorter["deadline"] == longer["deadline"]
    assert shorter["ttlHours"] == 1
    assert "the deadline stays" in plugin.display.texts(ephemeral=False)[-1]


def test_a_destroy_ends_with_a_receipt_and_leftovers_stop_it(plugin: Plugin, tmp_path: Path) -> None:
    id_, state = plugin.create("Cluster", CLUSTER)
    instance = launch(id_)
    text = refusal(lambda: plugin.delete("Cluster", id_, state)).details()
    assert instance in text
    aws_client("ec2").terminate_instances(InstanceIds=[instance])
    plugin.delete("Cluster", id_, state)
    (before, after) = plugin.display.texts(ephemeral=False)
    assert "left       1" in before
    assert "left       0" in after
    assert (tmp_path / ".rayrig" / "receipts" / f"{id_}.json").is_file()


def test_nothing_is_done_in_another_account(plugin: Plugin) -> None:
    state = CLUSTER | {
        "home": HOME | {"accountId": "000099999999"},
        "clusterId": "rr-one-1",
        "createdAt": "2026-01-01T00:00:00Z",
        "deadline": "2026-01-01T00:00:00Z",
    }
    for work in (
        lambda: plugin.read("Cluster", "x", state),
        lambda: plugin.delete("Cluster", "x", state),
        lambda: plugin.update("Cluster", state, CLUSTER),
        lambda: plugin.stub.Create(
            provider_pb2.CreateRequest(urn=urn("Cluster"), properties=to_struct(CLUSTER | {"home": state["home"]}))
        ),
        lambda: plugin.delete("Node", "x", NODE | {"home": state["home"]}),
    ):
        assert "000099999999" in refusal(work).details()
    failures = plugin.check("Cluster", CLUSTER, olds=CLUSTER | {"home": state["home"]}).failures
    assert [failure.property for failure in failures] == ["home"]


# KeptBucket


def bucket_inputs(**changes: object) -> dict[str, Any]:
    return {"home": HOME, "bucket": BUCKET, "keep": True, "prefixes": ["runs/one/"]} | changes


def test_a_kept_bucket_is_made_then_adopted_and_stays(plugin: Plugin) -> None:
    id_, state = plugin.create("KeptBucket", bucket_inputs())
    assert (id_, state["arn"], state["adopted"]) == (BUCKET, f"arn:aws:s3:::{BUCKET}", False)
    assert plugin.read("KeptBucket", id_, state) == state
    _, second = plugin.create("KeptBucket", bucket_inputs(prefixes=["runs/two/"]))
    assert second["adopted"] is True
    plugin.delete("KeptBucket", id_, state)
    assert "stays" in plugin.display.texts(ephemeral=False)[-1]
    assert aws_client("s3").head_bucket(Bucket=BUCKET)


def test_keep_false_deletes_what_is_this_stacks(plugin: Plugin) -> None:
    id_, state = plugin.create("KeptBucket", bucket_inputs())
    s3 = aws_client("s3")
    for key in ("runs/one/a", "runs/two/a"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    state = plugin.update("KeptBucket", state, bucket_inputs(keep=False))
    plugin.delete("KeptBucket", id_, state)
    assert [item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET)["Contents"]] == ["runs/two/a"]


# Node, RayHead, RayFleet


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
