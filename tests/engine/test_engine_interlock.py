"""The safety interlock under the real engine: whatever is run against the wrong account, the state stays as it was."""

import json
import socket
from collections.abc import Iterator

import pytest

VPC = {"vpc": ["aws:ec2/vpc:Vpc", {"cidrBlock": "10.80.0.0/16"}, []]}
OPERATIONS = {
    "up": ("up", "--yes", "--skip-preview"),
    "destroy": ("destroy", "--yes", "--skip-preview"),
    "refresh": ("refresh", "--yes", "--skip-preview"),
}


@pytest.fixture(scope="module")
def stack(stack_of, tmp_path_factory):
    stack = stack_of(tmp_path_factory.mktemp("interlock"), "resources.py")
    done = stack.up(resources=VPC)
    assert done.code == 0, done.text
    return stack


@pytest.fixture(scope="module")
def whole(stack) -> Iterator[dict]:
    """The state as the rehearsal left it; the stack is put back and ended after the tests."""
    exported = stack.export()
    yield exported
    stack.put(exported)
    done = stack.destroy()
    assert done.code == 0, done.text


def moved(deployment: dict, **changes: str | None) -> dict:
    """The deployment with the provider's settings changed; None takes one out."""
    copy = json.loads(json.dumps(deployment))
    for each in copy["deployment"]["resources"]:
        if each["type"] == "pulumi:providers:aws":
            for part in ("inputs", "outputs"):
                each[part] |= {name: value for name, value in changes.items() if value is not None}
                for name in [name for name, value in changes.items() if value is None]:
                    each[part].pop(name, None)
    return copy


def dead_url() -> str:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{bound.getsockname()[1]}"


def kept(deployment: dict) -> dict:
    """What must not change: every resource with its id, inputs and outputs."""
    return {
        each["urn"]: (each.get("id"), each.get("inputs"), each.get("outputs"))
        for each in deployment["deployment"]["resources"]
    }


CASES = {
    "a rehearsal that has ended": (
        {"endpoints": json.dumps([{"ec2": dead_url()}])},
        "this stack belongs to a rehearsal that has ended; nothing was changed",
    ),
    "another account": (
        {"allowedAccountIds": '["123456789012"]'},
        "the stack belongs to another account than this rehearsal's; nothing was changed",
    ),
    "a real account": ({"endpoints": None}, "the stack does not belong to a rehearsal"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("case", CASES)
def test_the_wrong_account_changes_nothing(stack, whole, ec2, case, operation):
    changes, text = CASES[case]
    stack.put(moved(whole, **changes))
    before = stack.export()
    done = stack.run(*OPERATIONS[operation])
    assert done.code != 0
    assert text in done.text
    assert "Traceback" not in done.text
    assert kept(stack.export()) == kept(before)
    vpc = next(each["id"] for each in whole["deployment"]["resources"] if each["urn"].endswith("::vpc"))
    assert ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"]


def test_a_shell_of_another_world_is_refused_without_refresh(stack, whole):
    stack.put(whole)
    here = dict(stack.environment)
    stack.environment["ENGINE_ACCOUNT"] = "123456789012"
    try:
        done = stack.run("up", "--yes", "--skip-preview", "--refresh=false")
    finally:
        stack.environment.update(here)
    assert done.code != 0
    assert "belongs to another account than this" in done.text
    assert kept(stack.export()) == kept(whole)


@pytest.mark.parametrize("shell", [None, "http://127.0.0.1:1"])
def test_destroy_from_a_shell_of_another_aws_ends_nothing_even_without_refresh(stack, whole, ec2, shell):
    """Such a destroy runs no program and reads nothing: it has only the settings that the stack recorded."""
    stack.put(whole)
    here = stack.environment.pop("AWS_ENDPOINT_URL")
    if shell:
        stack.environment["AWS_ENDPOINT_URL"] = shell
    try:
        done = stack.run("destroy", "--yes", "--skip-preview", "--refresh=false")
    finally:
        stack.environment["AWS_ENDPOINT_URL"] = here
    assert done.code != 0
    assert "belongs to another AWS than this shell's; nothing was changed" in done.text
    assert kept(stack.export()) == kept(whole)
    vpc = next(each["id"] for each in whole["deployment"]["resources"] if each["urn"].endswith("::vpc"))
    assert ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"]
