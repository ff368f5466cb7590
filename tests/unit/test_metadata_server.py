import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import boto3
import pytest

from rehearsal.aws.server import Server, serve
from rehearsal.metadata.notices import give_spot_notice
from rehearsal.metadata.server import MetadataServer
from rehearsal.metadata.source import Source
from rehearsal.nodes.instances import Cloud

REGION = "eu-west-1"
# Loopback as the VPC: this test can then call from an instance's own address, as nodes do.
NETWORK = "127.0.0.0/16"


@dataclass(frozen=True, kw_only=True)
class Place:
    server: Server
    cloud: Cloud
    metadata: MetadataServer
    strict: str
    """Address of an instance that insists on tokens."""
    lax: str
    strict_id: str
    notices: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    notices = tmp_path_factory.mktemp("notices")
    with serve(
        host="127.0.0.1", port=0, world_id="w1", account_id="000000000001", region=REGION, public_cidr="198.18.9.0/24"
    ) as server:
        cloud = Cloud(endpoint_url=server.url, region=REGION)
        vpc = cloud.ec2.create_vpc(CidrBlock=NETWORK)["Vpc"]["VpcId"]
        subnet = cloud.ec2.create_subnet(VpcId=vpc, CidrBlock="127.0.16.0/20", AvailabilityZone=f"{REGION}a")
        subnet_id = subnet["Subnet"]["SubnetId"]
        cloud.ec2.modify_subnet_attribute(SubnetId=subnet_id, MapPublicIpOnLaunch={"Value": True})
        cloud.ec2.import_key_pair(
            KeyName="k",
            PublicKeyMaterial=b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIN558TEr0ZeiPlR7axzbRONyvK1COjwFMtFxqyP7mJ4/ x",
        )
        cloud.iam.create_role(RoleName="r", AssumeRolePolicyDocument="{}")
        cloud.iam.create_instance_profile(InstanceProfileName="p")
        cloud.iam.add_role_to_instance_profile(InstanceProfileName="p", RoleName="r")
        ids = [_launch(cloud, subnet_id, tokens) for tokens in ("required", "optional")]
        addresses = [cloud.instances()[i].private_ip for i in ids]
        metadata = MetadataServer(Source(cloud, account_id=server.account_id, notices=notices), host="127.0.0.1")
        try:
            yield Place(
                server=server,
                cloud=cloud,
                metadata=metadata,
                strict=addresses[0],
                lax=addresses[1],
                strict_id=ids[0],
                notices=notices,
            )
        finally:
            metadata.stop()


def _launch(cloud: Cloud, subnet_id: str, tokens: str) -> str:
    answer = cloud.ec2.run_instances(
        ImageId="ami-0a11ce0024040001",
        InstanceType="m7i.large",
        MinCount=1,
        MaxCount=1,
        SubnetId=subnet_id,
        KeyName="k",
        IamInstanceProfile={"Name": "p"},
        UserData="#!/bin/sh\necho hällo\n",
        MetadataOptions={
            "HttpTokens": tokens,
            "InstanceMetadataTags": "enabled" if tokens == "required" else "disabled",
        },
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "rayrig:deadline", "Value": "2030-01-01"}]}],
    )
    return str(answer["Instances"][0]["InstanceId"])


def ask(
    place: Place, path: str, *, source: str, method: str = "GET", boot: bool = False, **headers: str
) -> tuple[int, str]:
    port = place.metadata.boot_port if boot else place.metadata.port
    connection = HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def token(place: Place, *, source: str) -> str:
    status, text = ask(
        place, "/latest/api/token", source=source, method="PUT", X_aws_ec2_metadata_token_ttl_seconds="60"
    )
    assert status == 200
    return text


def read(place: Place, path: str) -> str:
    status, text = ask(
        place, f"/latest/{path}", source=place.strict, X_aws_ec2_metadata_token=token(place, source=place.strict)
    )
    assert status == 200, path
    return text


def test_nobody_gets_anything_from_an_address_of_no_instance(place: Place):
    assert ask(place, "/latest/meta-data/instance-id", source="127.0.0.1")[0] == 404


def test_an_instance_that_asks_for_tokens_gets_nothing_without(place: Place):
    path = "/latest/meta-data/instance-id"
    assert ask(place, path, source=place.strict)[0] == 401
    assert ask(place, path, source=place.strict, User_Agent="Cloud-Init/22.4.2")[0] == 401
    assert ask(place, path, source=place.strict, X_aws_ec2_metadata_token="made-up")[0] == 401
    own = token(place, source=place.strict)
    assert ask(place, path, source=place.strict, X_aws_ec2_metadata_token=own) == (200, place.strict_id)
    assert ask(place, path, source=place.lax, X_aws_ec2_metadata_token=own)[0] == 401


def test_an_instance_that_leaves_tokens_open_needs_none(place: Place):
    assert ask(place, "/latest/meta-data/local-ipv4", source=place.lax) == (200, place.lax)


def test_cloud_init_reads_without_a_token_but_no_credentials(place: Place):
    assert ask(place, "/2021-03-23/meta-data/instance-id", source=place.strict, boot=True) == (200, place.strict_id)
    path = "/latest/meta-data/iam/security-credentials/r"
    assert ask(place, path, source=place.strict, boot=True)[0] == 401


@pytest.mark.parametrize("ttl", ["", "0", "21601", "soon"])
def test_a_token_needs_a_life_that_ec2_would_give(place: Place, ttl: str):
    status, _ = ask(
        place, "/latest/api/token", source=place.strict, method="PUT", X_aws_ec2_metadata_token_ttl_seconds=ttl
    )
    assert status == 400


def test_a_forwarded_request_for_a_token_is_refused(place: Place):
    status, _ = ask(
        place,
        "/latest/api/token",
        source=place.strict,
        method="PUT",
        X_aws_ec2_metadata_token_ttl_seconds="60",
        X_Forwarded_For="10.0.0.1",
    )
    assert status == 403


def test_what_an_instance_is(place: Place):
    instance = place.cloud.instances()[place.strict_id]
    mac = read(place, "meta-data/mac")
    assert read(place, "meta-data/network/interfaces/macs/") == f"{mac}/"
    assert read(place, f"meta-data/network/interfaces/macs/{mac}/subnet-ipv4-cidr-block") == "127.0.16.0/20"
    assert read(place, "meta-data/public-ipv4") == instance.public_ip
    assert read(place, "meta-data/local-hostname").startswith("ip-127-0-16-")
    assert read(place, "meta-data/placement/availability-zone") == "eu-west-1a"
    assert read(place, "meta-data/placement/region") == "eu-west-1"
    assert read(place, "meta-data/public-keys/") == "0=k"
    assert read(place, "meta-data/public-keys/0/openssh-key").startswith("ssh-ed25519 ")
    assert read(place, "user-data") == "#!/bin/sh\necho hällo\n"
    document = json.loads(read(place, "dynamic/instance-identity/document"))
    assert (document["instanceId"], document["accountId"]) == (place.strict_id, "000000000001")
    assert "meta-data" in read(place, "").splitlines()


def test_tags_are_there_only_where_asked_for(place: Place):
    assert read(place, "meta-data/tags/instance/rayrig:deadline") == "2030-01-01"
    assert ask(place, "/latest/meta-data/tags/instance", source=place.lax)[0] == 404


def test_role_credentials_are_those_of_this_instance(place: Place):
    assert read(place, "meta-data/iam/security-credentials/") == "r"
    credentials = json.loads(read(place, "meta-data/iam/security-credentials/r"))
    sts = boto3.session.Session(
        aws_access_key_id=credentials["AccessKeyId"],
        aws_secret_access_key=credentials["SecretAccessKey"],
        aws_session_token=credentials["Token"],
        region_name=REGION,
    ).client("sts", endpoint_url=place.server.url)
    assert sts.get_caller_identity()["UserId"].endswith(f":{place.strict_id}")
    assert read(place, "meta-data/iam/security-credentials/r") == json.dumps(credentials, indent=2)
    assert json.loads(read(place, "meta-data/iam/info"))["InstanceProfileArn"].endswith("instance-profile/p")


def test_a_spot_notice_is_there_once_it_is_given(place: Place):
    own = token(place, source=place.strict)
    path = "/latest/meta-data/spot/instance-action"
    assert ask(place, path, source=place.strict, X_aws_ec2_metadata_token=own)[0] == 404
    give_spot_notice(place.notices, place.strict_id)
    status, text = ask(place, path, source=place.strict, X_aws_ec2_metadata_token=own)
    assert (status, json.loads(text)["action"]) == (200, "terminate")


@pytest.mark.parametrize("path", ["/latest/meta-data/nothing", "/next/meta-data/", "/latest/meta-data/mac/deeper"])
def test_what_there_is_not(place: Place, path: str):
    own = token(place, source=place.strict)
    assert ask(place, path, source=place.strict, X_aws_ec2_metadata_token=own)[0] == 404
