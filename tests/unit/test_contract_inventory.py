"""The inventory: what is refused, and that it survives the wire."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from contract.errors import ConfigError
from contract.inventory import Endpoint, HealthCheck, Inventory, Ports, parse_inventory, read_inventory

DIGEST = "sha256:" + "ab" * 32


def node(name: str, role: str, last_octet: int) -> dict[str, Any]:
    return {
        "name": name,
        "role": role,
        "instanceId": f"i-{last_octet:017x}",
        "instanceType": "m7i.large",
        "cpuCount": 2,
        "memoryBytes": 8 * 2**30,
        "gpuCount": 0,
        "privateIp": f"10.77.0.{last_octet}",
        "publicIp": f"198.18.77.{last_octet}",
        "hostKey": "ssh-ed25519 AAAA",
    }


def document(**changes: Any) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "clusterId": "rr-dev-abc123",
        "stack": "dev",
        "accountId": "123456789012",
        "region": "eu-west-1",
        "availabilityZone": "eu-west-1a",
        "endpoint": {"kind": "aws"},
        "nodes": [node("head", "head", 10), node("worker-1", "worker", 11)],
        "access": {"method": "ssh", "user": "ubuntu", "cidr": "203.0.113.7/32"},
        "image": {"reference": f"registry.example/rayrig@{DIGEST}", "versions": {"ray": "2.60.0"}},
        "storage": {"bucket": "b", "resultsUri": "s3://b/runs/dev", "clusterUri": "s3://b/clusters/c"},
        "deadline": "2026-12-01T00:00:00Z",
    } | changes


def test_round_trip_keeps_everything() -> None:
    first = parse_inventory(json.dumps(document()), source="test")
    again = parse_inventory(json.dumps(first.to_wire()), source="test")
    assert again == first
    assert first.head.name == "head"
    assert [n.name for n in first.workers] == ["worker-1"]
    assert "clusterId" in first.to_wire()


def test_remaining_time_is_negative_after_the_deadline() -> None:
    inventory = Inventory.model_validate(document())
    assert inventory.remaining_seconds(datetime(2026, 12, 1, tzinfo=UTC) + timedelta(seconds=5)) == -5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": [node("worker-1", "worker", 11)]}, "exactly one head"),
        ({"nodes": [node("head", "head", 10), node("head", "worker", 11)]}, "share one name"),
        ({"nodes": [node("head", "head", 10), node("w", "worker", 10)]}, "share one"),
        ({"accountId": "12345"}, "accountId"),
        ({"image": {"reference": "registry.example/rayrig:latest"}}, "image.reference"),
        ({"endpoint": {"kind": "rehearsal"}}, "endpoint"),
        ({"deadline": "2026-12-01T00:00:00"}, "deadline"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_wrong_document_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_inventory(json.dumps(document(**changes)), source="cluster.json")
    assert words in str(caught.value)
    assert "cluster.json" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1, 2]", "null", '{"schemaVersion": 2}', "{"])
def test_other_documents_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_inventory(text, source="x")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        read_inventory(tmp_path / "absent.json")


def test_the_inventory_is_frozen() -> None:
    inventory = Inventory.model_validate(document())
    with pytest.raises(ValidationError):
        inventory.region = "us-east-1"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ({"gcs": 8265}, "same"),
        ({"min_worker": 10002, "max_worker": 10900}, "1000"),
        ({"ray_client": 12000}, "inside"),
        ({"max_worker": 40000}, "ephemeral"),
    ],
)
def test_ports_that_would_hang_ray_are_refused(ports: dict[str, int], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Ports(**ports)


def test_default_ports_are_consistent() -> None:
    assert Ports().gcs == 6379
    assert Ports().dashboard == 8265


def test_proof_time_follows_the_health_check() -> None:
    assert HealthCheck().proof_seconds == 45
    tuned = HealthCheck(initial_delay_ms=3000, period_ms=1000, timeout_ms=2000, failure_threshold=3)
    assert tuned.proof_seconds == 12


def test_aws_itself_has_no_url() -> None:
    with pytest.raises(ValidationError):
        Endpoint(kind="aws", url="http://127.0.0.1:5000")
