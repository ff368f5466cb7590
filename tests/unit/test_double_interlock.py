"""The safety interlock: the double works for the rehearsal that a stack was made in, and for nothing else."""

import json
import socket
import threading

import pytest
from in_double import RefusedError, aws, settings, unconfigured
from pulumi.runtime.proto import provider_pb2
from werkzeug.serving import make_server

from rehearsal.double.values import from_wire, to_wire

URN = "urn:pulumi:unit::double::pulumi:providers:aws::aws"


@pytest.fixture(scope="module")
def server():
    with aws() as server:
        yield server


@pytest.fixture(scope="module")
def double():
    with unconfigured() as double:
        yield double


@pytest.fixture
def dead_url():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{bound.getsockname()[1]}"


def refusal(double, inputs):
    with pytest.raises(RefusedError) as caught:
        double.configure(inputs)
    text = str(caught.value)
    assert "\n" not in text
    assert " Next: " in text
    return text


def test_the_rehearsals_own_settings_are_taken(double, server):
    double.configure(settings(server))


def test_a_stack_of_a_real_account_is_refused(double, server):
    inputs = {key: value for key, value in settings(server).items() if key != "endpoints"}
    text = refusal(double, inputs)
    assert "does not belong to a rehearsal" in text
    assert "without `rehearsal env`" in text


def test_a_rehearsal_that_has_ended_is_told_as_such(double, server, dead_url):
    text = refusal(double, settings(server, endpoints=json.dumps([{"ec2": dead_url}])))
    assert "this stack belongs to a rehearsal that has ended; nothing was changed" in text
    assert dead_url in text


@pytest.mark.parametrize("accounts", ['["123456789012"]', "[]", '["123456789012", "000000000000"]', None])
def test_another_account_than_the_rehearsals_is_refused(double, server, accounts):
    inputs = settings(server, allowedAccountIds=accounts)
    text = refusal(double, {key: value for key, value in inputs.items() if value is not None})
    assert "belongs to another account than this rehearsal's; nothing was changed" in text
    assert server.account_id in text


def test_something_else_that_answers_is_refused(double, server):
    def stranger(_environ, start_response):
        start_response("404 Not Found", [])
        return [b""]

    other = make_server("127.0.0.1", 0, stranger)
    url = f"http://127.0.0.1:{other.server_port}"
    thread = threading.Thread(target=other.serve_forever, daemon=True)
    thread.start()
    try:
        assert "answers, but as no rehearsal" in refusal(double, settings(server, endpoints=json.dumps([{"ec2": url}])))
    finally:
        other.shutdown()
        other.server_close()


def test_endpoints_of_two_worlds_are_refused(double, server, dead_url):
    both = json.dumps([{"ec2": server.url, "iam": dead_url}])
    assert "its endpoints differ" in refusal(double, settings(server, endpoints=both))


@pytest.mark.parametrize("shell", [None, "http://127.0.0.1:1"])
def test_a_shell_of_another_aws_is_refused_though_the_stacks_own_settings_are_right(double, server, monkeypatch, shell):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    if shell:
        monkeypatch.setenv("AWS_ENDPOINT_URL", shell)
    text = refusal(double, settings(server))
    assert f"lives in the rehearsal at {server.url}, this shell talks to {shell or 'AWS itself'}" in text


def test_without_configuration_nothing_is_read():
    with unconfigured() as double:
        with pytest.raises(RefusedError):
            double.configure({"region": "eu-west-1"})
        request = provider_pb2.ReadRequest(
            id="vpc-1", urn=URN.replace("pulumi:providers:aws::aws", "aws:ec2/vpc:Vpc::v")
        )
        with pytest.raises(RefusedError, match="was not configured"):
            double.call("Read", request)


def diff_config(double, olds, news):
    request = provider_pb2.DiffRequest(urn=URN, olds=to_wire(olds), news=to_wire(news), old_inputs=to_wire(olds))
    return double.call("DiffConfig", request)


def test_a_stack_cannot_move_to_another_world(double, server):
    olds = settings(server)
    for news in (
        olds | {"allowedAccountIds": '["123456789012"]'},
        {key: value for key, value in olds.items() if key != "endpoints"},
    ):
        with pytest.raises(RefusedError, match="belongs to another account than this shell's; nothing was changed"):
            diff_config(double, olds, news)


def test_other_settings_may_change(double, server):
    olds = settings(server)
    assert diff_config(double, olds, olds).changes == provider_pb2.DiffResponse.DIFF_NONE
    answer = diff_config(double, olds, olds | {"maxRetries": "5"})
    assert answer.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert list(answer.replaces) == []


def test_settings_that_are_not_simulated_are_told(double, server):
    request = provider_pb2.CheckRequest(urn=URN, news=to_wire(settings(server, assumeRoles="[]", profile="p")))
    answer = double.call("CheckConfig", request)
    assert [each.property for each in answer.failures] == ["assumeRoles"]
    assert "docs/how-to/add-an-aws-type.md" in answer.failures[0].reason
    assert from_wire(answer.inputs)["profile"] == "p"
