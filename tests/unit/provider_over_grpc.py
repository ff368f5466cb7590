"""The plugin over gRPC against moto, as the engine meets it, and an engine's display that keeps what is shown."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from in_moto import ANY_IMAGE, REGION, aws_client, in_moto
from moto.core import DEFAULT_ACCOUNT_ID
from pulumi.runtime.proto import engine_pb2_grpc, provider_pb2, provider_pb2_grpc

from account import tagged
from provider import cluster, nodes
from provider.operation import Cancellation
from provider.servicer import Servicer
from provider.values import from_struct, to_struct

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


@contextmanager
def running_plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Plugin]:
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


def bucket_inputs(**changes: object) -> dict[str, Any]:
    return {"home": HOME, "bucket": BUCKET, "keep": True, "prefixes": ["runs/one/"]} | changes
