"""Everything that infra's program asks of the aws provider is simulated by the double."""

import pytest
from in_double import unconfigured
from infra_recording import checked, record
from pulumi.runtime.proto import provider_pb2

from rehearsal.double.registry import TABLES
from rehearsal.double.values import to_wire

URL = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def recording():
    return record(checked(url=URL, workers=2), preview=False)


def test_its_resources_pass_check(recording):
    asked = [each for each in recording.resources if each.type.startswith("aws:")]
    assert {each.type for each in asked} <= set(TABLES)
    with unconfigured() as double:
        for each in asked:
            _, failures = double.check(each.type, dict(each.inputs), name=each.name)
            assert failures == {}, each.name


def test_its_provider_passes_check(recording):
    providers = [each for each in recording.resources if each.type == "pulumi:providers:aws"]
    assert providers
    with unconfigured() as double:
        for each in providers:
            request = provider_pb2.CheckRequest(urn=each.urn, news=to_wire(each.inputs))
            assert list(double.call("CheckConfig", request).failures) == []
