"""What nodes may do is what their role's policies say, with infra's own policy."""

import json

import boto3
import pytest
from botocore.exceptions import ClientError
from in_double import REGION, TRUST, aws, client

from contract.names import host_key_object
from infra.identity import node_policy
from rehearsal.aws.permissions import Asked, allowed

CLUSTER, RUNS, BUCKET = "c1", "runs/dev/", "results-of-nodes"


@pytest.fixture(scope="module")
def server():
    with aws(weigh_policies=True) as server:
        s3 = client(server, "s3")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket=BUCKET, Key="secret", Body=b"not for nodes")
        policy = node_policy(bucket_arn=f"arn:aws:s3:::{BUCKET}", cluster_id=CLUSTER, runs_prefix=RUNS)
        iam = client(server, "iam")
        iam.create_role(RoleName="node", AssumeRolePolicyDocument=TRUST)
        iam.put_role_policy(RoleName="node", PolicyName="node", PolicyDocument=policy)
        yield server


def node_client(server, service, instance="i-0000000000000000a"):
    role = client(server, "iam").get_role(RoleName="node")["Role"]
    answer = client(server, "sts").assume_role(RoleArn=role["Arn"], RoleSessionName=instance)
    made = boto3.client(
        service,
        region_name=REGION,
        endpoint_url=server.url,
        aws_access_key_id=answer["Credentials"]["AccessKeyId"],
        aws_secret_access_key=answer["Credentials"]["SecretAccessKey"],
        aws_session_token=answer["Credentials"]["SessionToken"],
    )
    return made, f"{role['RoleId']}:{instance}"


@pytest.fixture
def node(server):
    return node_client(server, "s3")


def refused(call, **params):
    with pytest.raises(ClientError) as caught:
        call(**params)
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_node_publishes_its_own_key_once(server, node):
    s3, user_id = node
    mine = {"Bucket": BUCKET, "Key": host_key_object(CLUSTER, user_id), "Body": b"ssh-ed25519 AAAA"}
    assert refused(s3.put_object, **mine) == ("AccessDenied", 403)
    s3.put_object(**mine, IfNoneMatch="*")
    assert refused(s3.put_object, **mine, IfNoneMatch="*") == ("PreconditionFailed", 412)
    _, neighbour = node_client(server, "s3", "i-0000000000000000b")
    other = mine | {"Key": host_key_object(CLUSTER, neighbour)}
    assert refused(s3.put_object, **other, IfNoneMatch="*") == ("AccessDenied", 403)


def test_a_node_works_in_its_runs_and_nowhere_else(node):
    s3, _ = node
    s3.put_object(Bucket=BUCKET, Key=f"{RUNS}a/metrics.jsonl", Body=b"1")
    assert s3.get_object(Bucket=BUCKET, Key=f"{RUNS}a/metrics.jsonl")["Body"].read() == b"1"
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix=RUNS)["KeyCount"] == 1
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=f"{RUNS}a/big")["UploadId"]
    s3.abort_multipart_upload(Bucket=BUCKET, Key=f"{RUNS}a/big", UploadId=upload)
    s3.copy_object(Bucket=BUCKET, Key=f"{RUNS}a/copy", CopySource=f"{BUCKET}/{RUNS}a/metrics.jsonl")
    listed = [{"Key": f"{RUNS}a/metrics.jsonl"}, {"Key": f"{RUNS}a/copy"}]
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": listed})
    for call, params in (
        (s3.get_object, {"Bucket": BUCKET, "Key": "secret"}),
        (s3.put_object, {"Bucket": BUCKET, "Key": "other", "Body": b""}),
        (s3.list_objects_v2, {"Bucket": BUCKET}),
        (s3.list_buckets, {}),
        (s3.delete_bucket, {"Bucket": BUCKET}),
        (s3.copy_object, {"Bucket": BUCKET, "Key": f"{RUNS}a/copy", "CopySource": f"{BUCKET}/secret"}),
        (s3.delete_objects, {"Bucket": BUCKET, "Delete": {"Objects": [{"Key": "secret"}]}}),
        (s3.get_object, {"Bucket": BUCKET, "Key": f"{RUNS}a/x", "VersionId": "null"}),
    ):
        assert refused(call, **params) == ("AccessDenied", 403)


def test_a_node_may_ask_who_it_is_but_end_nobody(server):
    sts, user_id = node_client(server, "sts")
    assert sts.get_caller_identity()["UserId"] == user_id
    ec2, _ = node_client(server, "ec2")
    assert refused(ec2.terminate_instances, InstanceIds=["i-1"]) == ("UnauthorizedOperation", 403)


def test_the_person_may_do_everything(server):
    assert client(server, "s3").get_object(Bucket=BUCKET, Key="secret")["Body"].read() == b"not for nodes"


@pytest.mark.parametrize(
    ("statement", "yes"),
    [
        ({"Action": "*", "Resource": "*"}, True),
        ({"Action": "s3:Get*", "Resource": "arn:aws:s3:::b/*"}, True),
        ({"Action": "S3:GETOBJECT", "Resource": "arn:aws:s3:::b/${aws:userid}/?"}, True),
        ({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/other/*"}, False),
        ({"Action": "s3:Put*", "Resource": "*"}, False),
        ({"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"s3:prefix": "p"}}}, True),
        ({"Action": "*", "Resource": "*", "Condition": {"StringLike": {"s3:prefix": ["x*", "y"]}}}, False),
        ({"Action": "*", "Resource": "*", "Condition": {"Null": {"s3:prefix": "true"}}}, False),
        ({"Action": "*", "Resource": "*", "Condition": {"StringEquals": {"s3:absent": "p"}}}, False),
        ({"Action": "*", "Resource": "*", "Condition": {"StringEqualsIfExists": {"s3:absent": "p"}}}, True),
        ({"Action": "*", "Resource": "*", "Condition": {"StringLike": {"aws:userid": "AROA*:i-1"}}}, True),
    ],
)
def test_a_statement_is_weighed_as_iam_does(statement, yes):
    asked = Asked(action="s3:GetObject", resource="arn:aws:s3:::b/AROA:i-1/k", context={"s3:prefix": "p"})
    allow = [json.loads(json.dumps(statement)) | {"Effect": "Allow"}]
    assert allowed(allow, asked, {"aws:userid": "AROA:i-1"}) is yes
    assert allowed([*allow, {"Effect": "Deny", "Action": "*", "Resource": "*"}], asked, {}) is False
