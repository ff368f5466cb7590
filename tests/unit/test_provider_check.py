"""Check and diff: readable failures, unknowns tolerated, and exactly the right things replace."""

from typing import Any

import pytest

from contract.resources import ClusterInputs, NodeInputs, RayFleetInputs
from provider.check import check_home, check_inputs
from provider.diff import Change, differences
from provider.kept_bucket import KeptBucket
from provider.nodes import Node, RayFleet, RayHead
from provider.servicer import RESOURCES
from provider.values import UNKNOWN, unknown_paths, written

HOME = {"accountId": "000012345678", "region": "eu-west-1", "endpoint": {"kind": "aws"}}
DIGEST = "registry/ray@sha256:" + "0" * 64
MACHINE = {
    "name": "worker-1",
    "role": "worker",
    "instanceId": "i-1",
    "instanceType": "m7i.large",
    "cpuCount": 2,
    "memoryBytes": 8 * 1024**3,
    "gpuCount": 0,
    "privateIp": "10.77.0.5",
}
CLUSTER = {"home": HOME, "stack": "one", "owner": "me", "ttlHours": 12}
NODE = {
    "home": HOME,
    "clusterId": "rr-one-1",
    "node": MACHINE,
    "user": "ubuntu",
    "roleId": "AROA1",
    "bucket": "b",
    "image": DIGEST,
}
HEAD = {
    "home": HOME,
    "clusterId": "rr-one-1",
    "head": MACHINE | {"name": "head", "role": "head", "instanceId": "i-0", "privateIp": "10.77.0.4"},
    "user": "ubuntu",
    "image": DIGEST,
    "ports": {},
    "healthCheck": {},
    "storage": {"bucket": "b", "resultsUri": "s3://b/runs/one", "clusterUri": "s3://b/clusters/rr-one-1"},
}
FLEET = HEAD | {"workers": [MACHINE]}


def changed(values: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one value at a dotted path set."""
    head, _, rest = path.partition(".")
    if isinstance(values, list):
        copy = list(values)
        copy[int(head)] = changed(copy[int(head)], rest, value) if rest else value
        return copy
    return values | {head: changed(values[head], rest, value) if rest else value}


def test_defaults_are_filled_in_and_nulls_left_out() -> None:
    checked = check_inputs(RayFleetInputs, FLEET | {"address": None})
    assert checked.failures == ()
    assert checked.inputs["ports"]["gcs"] == 6379
    assert checked.inputs["workers"][0]["market"] == "on-demand"
    assert "gpuModel" not in checked.inputs["workers"][0]
    assert check_inputs(RayFleetInputs, checked.inputs).inputs == checked.inputs


@pytest.mark.parametrize(
    "path", ["node.instanceId", "node", "node.cpuCount", "home.endpoint", "home.endpoint.kind", "image", "bucket"]
)
def test_what_is_unknown_is_taken_to_be_right(path: str) -> None:
    checked = check_inputs(NodeInputs, changed(NODE, path, UNKNOWN))
    assert checked.failures == ()
    assert [written(at) for at in unknown_paths(checked.inputs)] == [path]


def test_an_unknown_excuses_nothing_else() -> None:
    wrong = changed(changed(NODE, "node.instanceId", UNKNOWN), "node.cpuCount", -1)
    del wrong["user"]
    failures = {failure.property: failure.reason for failure in check_inputs(NodeInputs, wrong | {"x": 1}).failures}
    assert failures.keys() == {"node.cpuCount", "user", "x"}
    assert "greater than 0" in failures["node.cpuCount"]
    assert failures["user"] == "user is required"
    assert failures["x"] == "x is not a property of this resource"


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("ttlHours", -1, "greater than 0"),
        ("home.accountId", "12", "pattern"),
        ("home.endpoint", {"kind": "aws", "url": "http://x"}, "endpoint url"),
    ],
)
def test_failures_name_the_property(path: str, value: object, part: str) -> None:
    (failure,) = check_inputs(ClusterInputs, changed(CLUSTER, path, value)).failures
    assert failure.property == path
    assert failure.reason.startswith(f"{path}: ")
    assert part in failure.reason
    assert "\n" not in failure.reason


def test_workers_are_named_by_index() -> None:
    (failure,) = check_inputs(RayFleetInputs, changed(FLEET, "workers.0.gpuCount", -1)).failures
    assert failure.property == "workers[0].gpuCount"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("accountId", "000099999999"),
        ("region", "us-east-1"),
        ("endpoint", {"kind": "rehearsal", "url": "http://127.0.0.1:1"}),
    ],
)
def test_a_cluster_is_not_moved(path: str, value: object) -> None:
    (failure,) = check_home({"home": HOME}, {"home": changed(HOME, path, value)})
    assert failure.property == "home"
    assert "000012345678" in failure.reason
    assert "Next: " in failure.reason


def test_the_same_home_and_a_first_one_pass() -> None:
    same = changed(HOME, "endpoint", {"kind": "aws", "url": None})
    assert check_home({"home": HOME}, {"home": same}) == ()
    assert check_home({}, {"home": HOME}) == ()
    assert check_home({"home": HOME}, {"home": UNKNOWN}) == ()


def test_shared_prefixes_are_refused_before_anything_is_made() -> None:
    failures = KeptBucket().more_failures({"prefixes": ["runs/one/", "runs/", "", UNKNOWN]}, {})
    assert [failure.property for failure in failures] == ["prefixes[1]", "prefixes[2]"]


REPLACING = [
    (Node(), NODE, "node.instanceId", "i-9"),
    (Node(), NODE, "clusterId", "rr-two-2"),
    (Node(), NODE, "home.region", "us-east-1"),
    (Node(), NODE, "node", UNKNOWN),
    (Node(), NODE, "node.instanceId", UNKNOWN),
    (RayHead(), HEAD, "head.instanceId", "i-9"),
    (RayFleet(), FLEET, "head.instanceId", "i-9"),
    (RayFleet(), FLEET, "clusterId", "rr-two-2"),
    (RESOURCES["rayrig:index:Cluster"], CLUSTER, "home.accountId", "000099999999"),
    (KeptBucket(), {"home": HOME, "bucket": "b", "keep": True, "prefixes": ["runs/one/"]}, "bucket", "c"),
]
UPDATING = [
    (Node(), NODE, "image", DIGEST.replace("0", "1")),
    (Node(), NODE, "node.publicIp", "1.2.3.4"),
    (RayHead(), HEAD, "image", DIGEST.replace("0", "1")),
    (RayHead(), HEAD, "head.publicIp", "1.2.3.4"),
    (RayFleet(), FLEET, "workers", [MACHINE, MACHINE | {"name": "worker-2", "instanceId": "i-2"}]),
    (RayFleet(), FLEET, "workers", []),
    (RayFleet(), FLEET, "workers.0.instanceId", "i-9"),
    (RayFleet(), FLEET, "workers", UNKNOWN),
    (RESOURCES["rayrig:index:Cluster"], CLUSTER, "ttlHours", 24),
    (KeptBucket(), {"home": HOME, "bucket": "b", "keep": True, "prefixes": ["runs/one/"]}, "keep", False),
]


@pytest.mark.parametrize(("resource", "inputs", "path", "value"), REPLACING)
def test_what_replaces(resource: Any, inputs: dict[str, Any], path: str, value: object) -> None:
    found = differences(inputs, changed(inputs, path, value), replaced_by=resource.replaced_by)
    assert [item.name for item in found if item.replaces] == [path]


@pytest.mark.parametrize(("resource", "inputs", "path", "value"), UPDATING)
def test_what_updates(resource: Any, inputs: dict[str, Any], path: str, value: object) -> None:
    new = changed(inputs, path, value) if path not in {"node.publicIp", "head.publicIp"} else inputs
    if new is inputs:
        top = path.partition(".")[0]
        new = inputs | {top: inputs[top] | {"publicIp": value}}
    found = differences(inputs, new, replaced_by=resource.replaced_by)
    assert found
    assert not [item for item in found if item.replaces]


def test_a_learned_host_key_is_no_change() -> None:
    learned = changed(FLEET, "head", FLEET["head"] | {"hostKey": "ssh-ed25519 AAAA"})
    assert differences(FLEET, learned, replaced_by=RayFleet.replaced_by) == ()
    assert differences(FLEET, changed(learned, "head.hostKey", UNKNOWN), replaced_by=RayFleet.replaced_by) == ()


def test_null_and_missing_are_the_same() -> None:
    assert differences(NODE, changed(NODE, "node", MACHINE | {"gpuModel": None}), replaced_by=()) == ()


def test_paths_and_kinds_of_a_detailed_diff() -> None:
    new = changed(FLEET, "workers", [MACHINE | {"cpuCount": 4}, MACHINE | {"instanceId": "i-2"}]) | {"more": 1}
    del new["user"]
    found = {item.name: item.change for item in differences(FLEET, new, replaced_by=())}
    assert found == {
        "more": Change.ADD,
        "user": Change.DELETE,
        "workers[0].cpuCount": Change.UPDATE,
        "workers[1]": Change.ADD,
    }


@pytest.mark.parametrize(("keep", "refused"), [(False, True), (True, False)])
def test_a_renamed_bucket_never_costs_the_results_in_the_old_one(keep: bool, refused: bool) -> None:
    failures = KeptBucket().more_failures({"bucket": "new-name"}, {"bucket": "old-name", "keep": keep})
    assert [failure.property for failure in failures] == (["bucket"] if refused else [])
    assert KeptBucket().more_failures({"bucket": "old-name"}, {"bucket": "old-name", "keep": keep}) == ()
