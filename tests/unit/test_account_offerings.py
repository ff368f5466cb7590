from typing import Any

import pytest
from botocore.stub import Stubber
from in_moto import REGION, in_moto

from account import ami, clients, identity, offerings, prices
from account.clients import AwsError
from contract.errors import CloudError, ConfigError
from contract.inventory import Endpoint, EndpointKind

AWS = Endpoint(kind=EndpointKind.AWS)
GIB = 1024**3


def client(service: str) -> Any:
    return clients.session().client(service, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")


def test_hardware_of_a_cpu_and_a_gpu_type(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_moto(monkeypatch):
        ec2 = clients.client("ec2", region=REGION, endpoint=AWS)
        cpu = offerings.describe_instance_type(ec2, "m7i.large")
        gpu = offerings.describe_instance_type(ec2, "g5.12xlarge")
    assert (cpu.cpu_count, cpu.memory_bytes, cpu.gpu_count, cpu.gpu_model) == (2, 8 * GIB, 0, None)
    assert cpu.architectures == ("x86_64",)
    assert (gpu.gpu_count, gpu.gpu_model, gpu.gpu_manufacturer) == (4, "A10G", "NVIDIA")
    assert gpu.gpu_memory_bytes == pytest.approx(4 * 22.35 * GIB, rel=0.01)
    assert gpu.network == "40 Gigabit"


def test_an_unknown_type_is_told_apart_from_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_moto(monkeypatch):
        ec2 = clients.client("ec2", region=REGION, endpoint=AWS)
        with pytest.raises(offerings.UnknownTypeError, match=r"no instance type 'm99\.large' in eu-west-1"):
            offerings.describe_instance_type(ec2, "m99.large")
    ec2 = client("ec2")
    with Stubber(ec2) as stub:
        stub.add_client_error("describe_instance_types", "UnauthorizedOperation", "You are not authorized")
        with pytest.raises(AwsError, match="You are not authorized") as caught:
            offerings.describe_instance_type(ec2, "m7i.large")
    assert caught.value.denied


def test_zones_are_those_that_offer_every_type() -> None:
    ec2 = client("ec2")
    answers = [("g5.xlarge", "eu-west-1b"), ("m7i.large", "eu-west-1a"), ("m7i.large", "eu-west-1b")]
    with Stubber(ec2) as stub:
        stub.add_response(
            "describe_instance_type_offerings",
            {"InstanceTypeOfferings": [{"InstanceType": kind, "Location": zone} for kind, zone in answers]},
            {
                "LocationType": "availability-zone",
                "Filters": [{"Name": "instance-type", "Values": ["g5.xlarge", "m7i.large"]}],
            },
        )
        assert offerings.zones_offering(ec2, ["m7i.large", "g5.xlarge", "m7i.large"]) == ("eu-west-1b",)
    assert offerings.zones_offering(ec2, []) == ()


def test_a_type_that_no_zone_offers_leaves_no_zone() -> None:
    ec2 = client("ec2")
    with Stubber(ec2) as stub:
        stub.add_response("describe_instance_type_offerings", {"InstanceTypeOfferings": []})
        assert offerings.zones_offering(ec2, ["p5.48xlarge"]) == ()


def test_regions_are_known_offline() -> None:
    assert {"eu-west-1", "us-east-1", "cn-north-1"} <= set(offerings.known_regions())


def test_the_image_is_ubuntu_for_cpus_and_deep_learning_for_gpus() -> None:
    for gpu, name in ((False, ami.CPU_PARAMETER), (True, ami.GPU_PARAMETER)):
        ssm, ec2 = client("ssm"), client("ec2")
        with Stubber(ssm) as parameters, Stubber(ec2) as images:
            parameters.add_response("get_parameter", {"Parameter": {"Name": name, "Value": "ami-1"}}, {"Name": name})
            disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}}
            images.add_response(
                "describe_images",
                {
                    "Images": [
                        {"RootDeviceName": "/dev/sda1", "BlockDeviceMappings": [{"DeviceName": "/dev/sdb"}, disk]}
                    ]
                },
            )
            assert ami.resolve(ssm, ec2, gpu=gpu) == ami.Ami(id="ami-1", root_bytes=75 * GIB)


def test_a_region_without_the_image_and_a_refusal_are_told() -> None:
    ssm, ec2 = client("ssm"), client("ec2")
    with Stubber(ssm) as stub:
        stub.add_client_error("get_parameter", "ParameterNotFound")
        with pytest.raises(CloudError, match="choose another region"):
            ami.resolve(ssm, ec2, gpu=True)
        stub.add_client_error("get_parameter", "AccessDeniedException", "not yours")
        with pytest.raises(CloudError, match="not yours"):
            ami.resolve(ssm, ec2, gpu=False)


def test_a_disk_size_that_we_may_not_ask_for_is_unknown() -> None:
    ssm, ec2 = client("ssm"), client("ec2")
    with Stubber(ssm) as parameters, Stubber(ec2) as images:
        parameters.add_response("get_parameter", {"Parameter": {"Value": "ami-1"}})
        images.add_client_error("describe_images", "UnauthorizedOperation")
        assert ami.resolve(ssm, ec2, gpu=False).root_bytes is None


@pytest.mark.parametrize(
    ("arn", "owner"),
    [
        ("arn:aws:iam::123456789012:user/alice", "alice"),
        ("arn:aws:iam::123456789012:root", "root"),
        ("arn:aws:sts::123456789012:assumed-role/Admin/alice@example.org", "alice@example.org"),
        ("arn:aws:sts::123456789012:assumed-role/Admin/a,b", "a-b"),
    ],
)
def test_the_owner_is_the_user_or_the_session(arn: str, owner: str) -> None:
    assert identity.Caller(account_id="123456789012", arn=arn).owner == owner


def test_the_caller_comes_from_sts(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_moto(monkeypatch):
        found = identity.caller(clients.client("sts", region=REGION, endpoint=AWS))
    assert found.account_id == "123456789012"


def test_without_credentials_one_readable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"no usable AWS credentials\..*aws configure"):
        identity.caller(clients.client("sts", region=REGION, endpoint=AWS))


def test_an_unknown_profile_is_one_readable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError, match="nobody"):
        clients.client("sts", region=REGION, endpoint=AWS)


def test_prices_come_from_the_table_or_not_at_all() -> None:
    assert prices.instance_usd_per_hour("m7i.large", "us-east-1") == 0.1008
    assert prices.instance_usd_per_hour("g4dn.xlarge", "eu-west-1") == 0.587
    assert prices.instance_usd_per_hour("g6.xlarge", "us-east-1") == 0.8048
    assert prices.instance_usd_per_hour("g5.xlarge", "mars-1") is None
    assert prices.region_usd_per_hour("eu-west-1")["m7i.large"] == 0.11235
    assert prices.region_usd_per_hour("mars-1") == {}
    assert prices.cluster_usd_per_hour(["m7i.large", "x9.huge"], "us-east-1") is None
    assert prices.cluster_usd_per_hour(["m7i.large", "g5.xlarge"], "us-east-1") == pytest.approx(0.1008 + 1.006 + 0.01)


def test_the_price_table_is_dated_sourced_and_sane() -> None:
    table = prices.table()
    assert table.read_on.year >= 2026
    assert all(0 < price < 200 for regions in table.on_demand.values() for price in regions.values())
    assert all("us-east-1" in regions or "us-west-2" in regions for regions in table.on_demand.values())
    for family in ("m7i.large", "g4dn.xlarge", "g5.xlarge", "g6.xlarge"):
        assert family in table.on_demand
