"""The plugin under the real engine: up, no change, adoption, receipt, leftovers, interlock, Ctrl-C."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from provider_project import REGION, Aws, Project, running_aws

ACCOUNT, OTHER_ACCOUNT = "000012345678", "000099999999"
UGLY = ("Traceback", "Unexpected", 'File "', "rpc error", "exited prematurely")


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with running_aws(ACCOUNT) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, pulumi_folder: Path, aws: Aws) -> Project:
    return Project(folder=tmp_path, cli=pulumi_folder, stack="one", aws=aws)


def cluster(aws: Aws, **changes: object) -> dict[str, Any]:
    return {
        "name": "cluster",
        "type": "rayrig:index:Cluster",
        "inputs": {"home": aws.home, "stack": "one", "owner": "me", "ttlHours": 12} | changes,
        "outputs": ["clusterId", "createdAt", "deadline", "expired"],
    }


def bucket(aws: Aws, stack: str, **changes: object) -> dict[str, Any]:
    return {
        "name": "bucket",
        "type": "rayrig:index:KeptBucket",
        "inputs": {"home": aws.home, "bucket": bucket_name(aws), "prefixes": [f"runs/{stack}/"]} | changes,
        "outputs": ["arn", "adopted"],
    }


def bucket_name(aws: Aws) -> str:
    return f"rayrig-results-{aws.account_id}-{REGION}"


def node(aws: Aws, instance_id: str) -> dict[str, Any]:
    machine = {
        "name": "worker-1",
        "role": "worker",
        "instanceId": instance_id,
        "instanceType": "m7i.large",
        "cpuCount": 2,
        "memoryBytes": 8 * 1024**3,
        "gpuCount": 0,
        "privateIp": "10.77.0.5",
    }
    inputs = {
        "home": aws.home,
        "clusterId": {"$ref": "cluster.clusterId"},
        "node": machine,
        "user": "ubuntu",
        "roleId": "AROA1",
        "bucket": {"$ref": "bucket.id"},
        "image": "registry/ray@sha256:" + "0" * 64,
    }
    return {"name": "node", "type": "rayrig:index:Node", "inputs": inputs}


def launch(aws: Aws) -> str:
    ec2 = aws.client("ec2")
    image = ec2.describe_images(MaxResults=5)["Images"][0]["ImageId"]
    subnet = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"][0]["SubnetId"]
    made = ec2.run_instances(ImageId=image, InstanceType="m7i.large", MinCount=1, MaxCount=1, SubnetId=subnet)
    return made["Instances"][0]["InstanceId"]


def clean(output: str) -> str:
    assert not [word for word in UGLY if word in output], output
    return output


def test_from_preview_to_receipt(project: Project, aws: Aws) -> None:
    project.resources(cluster(aws), bucket(aws, "one"))
    assert "+ 3 to create" in clean(project.run("preview").stdout)
    up = project.run("up")
    assert up.returncode == 0, up.stdout
    again = project.run("up")
    assert "3 unchanged" in clean(again.stdout), again.stdout

    state = project.state_of("cluster")
    assert state is not None
    cluster_id = state["id"]
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "rayrig:cluster", "Value": cluster_id}]}]
    ec2 = aws.client("ec2")
    orphan = ec2.create_vpc(CidrBlock="10.80.0.0/16", TagSpecifications=tags)["Vpc"]["VpcId"]
    refused = project.run("destroy")
    assert refused.returncode != 0
    assert f"VPC {orphan}" in clean(refused.stdout)
    assert "left   1" in refused.stdout
    assert project.state_of("cluster")["id"] == cluster_id

    ec2.delete_vpc(VpcId=orphan)
    done = project.run("destroy")
    assert done.returncode == 0, done.stdout
    assert "left   0" in clean(done.stdout)
    assert f"kept   s3://{bucket_name(aws)}" in done.stdout
    assert project.export().get("resources", []) == []
    here = json.loads((project.folder / ".rayrig" / "receipts" / f"{cluster_id}.json").read_text())
    kept = aws.client("s3").get_object(Bucket=bucket_name(aws), Key=f"clusters/{cluster_id}/receipt.json")
    assert json.loads(kept["Body"].read()) == here
    assert here["left"] == []


def test_wrong_credentials_and_a_wrong_shell_change_nothing(project: Project, aws: Aws) -> None:
    project.resources(cluster(aws), bucket(aws, "one"))
    assert project.run("up").returncode == 0
    before = resources_of(project.export())

    def refused(verb: str, *arguments: str, said: str) -> None:
        done = project.run(verb, *arguments)
        assert done.returncode != 0, done.stdout
        assert said in clean(done.stdout)
        assert resources_of(project.export()) == before

    project.aws = None
    refused("destroy", said="this shell talks to AWS itself")
    with running_aws(OTHER_ACCOUNT) as other:
        project.aws = other
        refused("refresh", said=other.url)
        # As the program would have it, which takes its home from the credentials at hand.
        project.resources(cluster(other), bucket(other, "one"))
        refused("up", said=aws.url)
        refused("up", "--refresh=false", said=f"this stack's cluster lives in account {ACCOUNT}")
        assert not other.client("s3").list_buckets()["Buckets"]
    project.aws = aws
    assert project.run("destroy").returncode == 0


def resources_of(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    """What the state holds, without when it was looked at."""
    kept = ("urn", "id", "inputs", "outputs")
    items = [{key: item.get(key) for key in kept} for item in deployment["resources"] if item["custom"]]
    return sorted(items, key=lambda item: item["urn"])


def test_a_second_stack_adopts_the_bucket(project: Project, aws: Aws) -> None:
    project.resources(bucket(aws, "one"))
    assert project.run("up").returncode == 0
    second = project.another("two")
    second.resources(bucket(aws, "two"))
    assert second.run("up").returncode == 0
    assert second.state_of("bucket")["outputs"]["adopted"] is True


def test_a_node_that_fails_and_one_that_is_interrupted(project: Project, aws: Aws) -> None:
    dead, silent = launch(aws), launch(aws)
    aws.client("ec2").terminate_instances(InstanceIds=[dead])
    project.resources(cluster(aws), bucket(aws, "one"), node(aws, dead))
    failed = project.run("up")
    assert failed.returncode != 0
    (line,) = {line.strip() for line in clean(failed.stdout).splitlines() if line.strip().startswith("error: worker-1")}
    assert re.match(rf"error: worker-1 \({dead}\): the instance is terminated before .*\. Next: ", line)
    assert project.state_of("node") is None

    project.resources(cluster(aws), bucket(aws, "one"), node(aws, silent))
    code, output, seconds = project.interrupted("up", when="waiting for its host key")
    assert code != 0
    assert seconds < 15
    clean(output)
    assert project.state_of("node") is None
    assert not project.export().get("pending_operations")
    assert project.run("destroy").returncode == 0
