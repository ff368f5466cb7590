"""Cluster and KeptBucket over gRPC against moto: made, read, renewed, refused, ended by a receipt."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from in_moto import aws_client
from provider_over_grpc import BUCKET, CLUSTER, HOME, Plugin, bucket_inputs, launch, refusal, running_plugin, urn
from pulumi.runtime.proto import provider_pb2
from test_provider_check import NODE

from provider.values import UNKNOWN, to_struct


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Plugin]:
    with running_plugin(monkeypatch, tmp_path) as running:
        yield running


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
