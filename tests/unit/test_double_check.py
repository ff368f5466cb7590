"""Check: defaults and names as the real provider sets them, and one readable line per mistake."""

import pytest
from in_double import POLICY, TRUST, RefusedError, unconfigured

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
INSTANCE = "aws:ec2/instance:Instance"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"


@pytest.fixture(scope="module")
def double():
    with unconfigured() as double:
        yield double


def test_defaults_are_the_providers(double):
    inputs, failures = double.check(VPC, {"cidrBlock": "10.77.0.0/16"})
    assert failures == {}
    assert inputs == {
        "cidrBlock": "10.77.0.0/16",
        "assignGeneratedIpv6CidrBlock": False,
        "enableDnsSupport": True,
        "instanceTenancy": "default",
        "__defaults": ["assignGeneratedIpv6CidrBlock", "enableDnsSupport", "instanceTenancy"],
    }


def test_a_name_is_made_once_and_kept(double):
    token = "aws:iam/role:Role"
    first, _ = double.check(token, {"assumeRolePolicy": TRUST}, name="head")
    stem, _, digits = first["name"].partition("-")
    assert stem == "head"
    assert len(digits) == 7
    assert set(digits) <= set("0123456789abcdef")
    again, _ = double.check(token, {"assumeRolePolicy": TRUST}, olds=first, name="head")
    assert again["name"] == first["name"]
    given, _ = double.check(token, {"assumeRolePolicy": TRUST, "name": "mine"}, olds=first)
    assert given["name"] == "mine"
    back, _ = double.check(token, {"assumeRolePolicy": TRUST}, olds=given, name="head")
    assert back["name"] not in {"mine", ""}


def test_a_long_name_is_cut_to_what_iam_takes(double):
    inputs, failures = double.check("aws:iam/role:Role", {"assumeRolePolicy": TRUST}, name="n" * 100)
    assert failures == {}
    assert len(inputs["name"]) == 64


@pytest.mark.parametrize(
    ("token", "inputs", "where", "what"),
    [
        (VPC, {"cidrBlock": "10.0.0.0/16", "tag": {}}, "tag", "did you mean tags?"),
        (VPC, {"cidrBlock": "10.0.0.0/16", "arn": "arn:x"}, "arn", "is AWS's answer and cannot be set"),
        (VPC, {"cidrBlock": "10.0.0.0/8"}, "cidrBlock", "expected a block from /16 to /28"),
        (VPC, {"cidrBlock": "10.0.0.300/16"}, "cidrBlock", "is not an IPv4 CIDR block"),
        (VPC, {"cidrBlock": "10.0.0.0/16", "enableDnsSupport": "yes"}, "enableDnsSupport", "expected true or false"),
        (VPC, {"cidrBlock": "10.0.0.0/16", "ipv6NetmaskLength": 56}, "ipv6NetmaskLength", "add-an-aws-type.md"),
        (VPC, {"cidrBlock": "10.0.0.0/16", "tags": {"a": 1}}, "tags", "expected a map of strings"),
        (VPC, {}, "cidrBlock", "missing required property cidrBlock"),
        (SUBNET, {"cidrBlock": "10.0.0.0/20"}, "vpcId", "missing required property vpcId"),
        (SUBNET, {"vpcId": "v", "cidrBlock": "10.0.0.0/20", "ipv6Native": True}, "ipv6Native", "only false"),
        ("aws:ec2/routeTable:RouteTable", {"vpcId": "v", "routes": []}, "routes", "does not simulate it"),
        ("aws:ec2/keyPair:KeyPair", {"publicKey": "-----BEGIN"}, "publicKey", "an OpenSSH public key in one line"),
        ("aws:iam/role:Role", {"assumeRolePolicy": "{"}, "assumeRolePolicy", "not a JSON document"),
        ("aws:iam/role:Role", {"assumeRolePolicy": TRUST, "maxSessionDuration": 60}, "maxSessionDuration", "from 3600"),
        ("aws:iam/rolePolicy:RolePolicy", {"role": "arn:aws:iam::1:role/r", "policy": POLICY}, "role", "not its ARN"),
        (RULE, {"securityGroupId": "g", "ipProtocol": "tcp", "cidrIpv4": "0.0.0.0/0"}, "fromPort", "needs fromPort"),
        (
            RULE,
            {"securityGroupId": "g", "ipProtocol": "tcp", "fromPort": 9, "toPort": 8, "cidrIpv4": "0.0.0.0/0"},
            "toPort",
            "lies below",
        ),
        (RULE, {"securityGroupId": "g", "ipProtocol": "-1"}, "cidrIpv4", "give exactly one of"),
        (
            RULE,
            {"securityGroupId": "g", "ipProtocol": "-1", "cidrIpv4": "0.0.0.0/0", "referencedSecurityGroupId": "g"},
            "referencedSecurityGroupId",
            "not cidrIpv4 and referencedSecurityGroupId",
        ),
        (RULE, {"securityGroupId": "g", "ipProtocol": "-1", "cidrIpv4": "::/0"}, "cidrIpv4", "not an IPv4 CIDR block"),
        (INSTANCE, {"instanceType": "m7i.large"}, "ami", "missing property ami"),
        (INSTANCE, {"ami": "a", "instanceType": "m", "placementGroup": "p"}, "placementGroup", "does not simulate it"),
        (
            INSTANCE,
            {"ami": "a", "instanceType": "m", "metadataOptions": {"httpTokens": "must"}},
            "metadataOptions.httpTokens",
            "expected one of optional, required, got 'must'",
        ),
        (
            INSTANCE,
            {"ami": "a", "instanceType": "m", "rootBlockDevice": {"volumeSise": 30}},
            "rootBlockDevice.volumeSise",
            "did you mean rootBlockDevice.volumeSize?",
        ),
        (
            INSTANCE,
            {"ami": "a", "instanceType": "m", "rootBlockDevice": {"volumeType": "gp2", "throughput": 250}},
            "rootBlockDevice.throughput",
            "throughput is for gp3 volumes",
        ),
        (INSTANCE, {"ami": "a", "instanceType": "m", "userData": "x" * 17000}, "userData", "at most 16384 bytes"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_where_it_is(double, token, inputs, where, what):
    _, failures = double.check(token, inputs)
    assert what in failures[where]
    assert list(failures) == [where]


def test_unknown_values_pass(double):
    unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
    inputs, failures = double.check(
        RULE,
        {"securityGroupId": unknown, "ipProtocol": "tcp", "fromPort": 1, "toPort": unknown, "cidrIpv4": unknown},
    )
    assert failures == {}
    assert repr(inputs["cidrIpv4"]) == "<unknown>"


def test_an_unknown_type_is_an_error_that_says_where_to_add_it(double):
    with pytest.raises(RefusedError, match=r"aws:efs/fileSystem:FileSystem: .*docs/how-to/add-an-aws-type.md"):
        double.check("aws:efs/fileSystem:FileSystem", {})
