"""The tables against the provider's SDK and the real provider's answers: nothing is left out, nothing made up."""

import importlib
import inspect
import json

import pulumi
import pytest

from rehearsal.double.answers import FOLDER, NEWER, answers, file_of
from rehearsal.double.registry import TABLES


def sdk_of(token):
    """The SDK's class of a type: `aws:ec2/vpc:Vpc` is pulumi_aws.ec2.Vpc."""
    _, module, name = token.split(":")
    return getattr(importlib.import_module(f"pulumi_aws.{module.split('/')[0]}"), name)


def args_of(token):
    _, module, name = token.split(":")
    return getattr(importlib.import_module(f"pulumi_aws.{module.split('/')[0]}"), f"{name}Args")


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_has_every_property_of_the_sdk_and_no_other(table):
    args = args_of(table.pulumi_type)
    assert issubclass(sdk_of(table.pulumi_type), pulumi.CustomResource)
    assert set(table.properties) == {pulumi_name(args, name) for name in inspect.signature(args).parameters}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_has_every_output_of_the_sdk(table):
    resource = sdk_of(table.pulumi_type)
    outputs = {
        getter.fget._pulumi_name
        for _, getter in inspect.getmembers(resource, lambda member: isinstance(member, property))
        if getattr(getter.fget, "_pulumi_name", None)
    }
    assert outputs - {"id", "urn"} == set(table.properties) | set(table.outputs)


@pytest.mark.parametrize(
    ("token", "block", "args"),
    [
        ("aws:ec2/instance:Instance", "rootBlockDevice", "InstanceRootBlockDeviceArgs"),
        ("aws:ec2/instance:Instance", "metadataOptions", "InstanceMetadataOptionsArgs"),
    ],
)
def test_a_block_has_every_property_of_the_sdk(token, block, args):
    found = getattr(importlib.import_module("pulumi_aws.ec2"), args)
    names = {pulumi_name(found, name) for name in inspect.signature(found).parameters}
    answered = {"deviceName", "volumeId"}
    assert set(TABLES[token].properties[block].fields) == names - answered


def pulumi_name(args, name):
    """The name on the wire of an argument in Python."""
    return getattr(args, name).fget._pulumi_name


def simulated(properties, prefix=""):
    for name, prop in properties.items():
        if prop.simulated and prop.kind == "block":
            yield from simulated(prop.fields, f"{prefix}{name}.")
        elif prop.simulated:
            yield prefix + name


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_real_provider_answered_for_every_simulated_property(table):
    known = answers(table.pulumi_type)
    unanswered = {
        name
        for name in simulated(table.properties)
        if known.get(name, {}).get("answer", "unknown") == "unknown" and name not in NEWER
    }
    assert unanswered == set()
    assert set(table.properties) <= set(known) | set(NEWER)


def test_every_file_of_answers_belongs_to_a_table():
    assert {json.loads(path.read_text())["token"] for path in FOLDER.glob("*.json")} == set(TABLES)
    assert all(file_of(token).exists() for token in TABLES)


def test_required_properties_are_those_of_the_sdk():
    for token, table in TABLES.items():
        wanted = {
            pulumi_name(args_of(token), name)
            for name, parameter in inspect.signature(args_of(token)).parameters.items()
            if parameter.default is inspect.Parameter.empty
        }
        assert {name for name, prop in table.properties.items() if prop.required} == wanted, token
