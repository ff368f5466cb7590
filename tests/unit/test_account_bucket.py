"""The kept bucket: made, adopted or refused; emptied only where it is this stack's."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from in_moto import REGION, aws_client, in_moto
from moto.core import DEFAULT_ACCOUNT_ID

from account.kept_bucket import (
    bucket_is_gone,
    bucket_tags,
    delete_prefixes,
    ensure_kept_bucket,
    is_own_prefix,
    measure_bucket,
    own_buckets,
)
from account.patience import Patience
from contract.errors import ConfigError
from contract.names import results_bucket_name

NAME = "rayrig-results-test"
ONCE = Patience(deadline_seconds=0, interval_seconds=0)
TWICE = Patience(deadline_seconds=0.02, interval_seconds=0.02)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with in_moto(monkeypatch):
        yield aws_client("s3")


def ensure(s3: Any, *, account_id: str = DEFAULT_ACCOUNT_ID, region: str = REGION) -> bool:
    return ensure_kept_bucket(s3, NAME, account_id=account_id, region=region, owner="me", patience=ONCE)


def delete(s3: Any, *prefixes: str) -> Any:
    return delete_prefixes(s3, NAME, prefixes, account_id=DEFAULT_ACCOUNT_ID, region=REGION)


def test_a_new_bucket_is_private_encrypted_versioned_and_tidied(s3) -> None:
    assert ensure(s3) is False
    assert bucket_tags(s3, NAME) == {"rayrig:keep": "true", "rayrig:owner": "me"}
    assert all(s3.get_public_access_block(Bucket=NAME)["PublicAccessBlockConfiguration"].values())
    assert s3.get_bucket_versioning(Bucket=NAME)["Status"] == "Enabled"
    rule = s3.get_bucket_encryption(Bucket=NAME)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert s3.get_bucket_ownership_controls(Bucket=NAME)["OwnershipControls"]["Rules"] == [
        {"ObjectOwnership": "BucketOwnerEnforced"}
    ]
    rules = {rule["ID"]: rule for rule in s3.get_bucket_lifecycle_configuration(Bucket=NAME)["Rules"]}
    assert rules["rayrig-old-versions"]["NoncurrentVersionExpiration"]["NoncurrentDays"] == 30
    assert rules["rayrig-unfinished-uploads"]["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 7


def test_own_bucket_is_adopted_and_what_was_set_on_it_stays(s3) -> None:
    ensure(s3)
    mine = {"ID": "mine", "Status": "Enabled", "Filter": {"Prefix": "x/"}, "Expiration": {"Days": 3}}
    s3.put_bucket_lifecycle_configuration(Bucket=NAME, LifecycleConfiguration={"Rules": [mine]})
    assert ensure(s3) is True
    assert [rule["ID"] for rule in s3.get_bucket_lifecycle_configuration(Bucket=NAME)["Rules"]] == ["mine"]


def test_an_interrupted_creation_is_finished(s3) -> None:
    s3.create_bucket(Bucket=NAME, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_bucket_tagging(Bucket=NAME, Tagging={"TagSet": [{"Key": "rayrig:keep", "Value": "true"}]})
    assert ensure(s3) is True
    assert s3.get_bucket_versioning(Bucket=NAME)["Status"] == "Enabled"


def test_a_creation_cut_off_before_its_tag_is_finished_for_the_default_name_while_it_is_empty(s3) -> None:
    name = results_bucket_name(DEFAULT_ACCOUNT_ID, REGION)

    def again() -> bool:
        return ensure_kept_bucket(s3, name, account_id=DEFAULT_ACCOUNT_ID, region=REGION, owner="me", patience=ONCE)

    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket=name, Key="somebody's", Body=b"x")
    with pytest.raises(ConfigError, match="not rayrig's"):
        again()
    s3.delete_object(Bucket=name, Key="somebody's")
    assert again() is True
    assert bucket_tags(s3, name) == {"rayrig:keep": "true", "rayrig:owner": "me"}


def test_a_bucket_whose_creation_was_answered_to_nobody_is_still_ours(s3) -> None:
    real = s3.create_bucket

    def lost_answer(**arguments: Any) -> None:  # boto asks again, and S3 says that we have it
        real(**arguments)
        real(**arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3, "create_bucket", lost_answer)
        ensure(s3)
    assert "rayrig:keep" in bucket_tags(s3, NAME)


def test_buckets_of_other_regions_are_never_asked(s3) -> None:
    # One in an opt-in region, say, refuses credentials that are good here, and must not stop a destroy.
    ensure(s3)
    aws_client("s3", "us-east-1").create_bucket(Bucket="somebodys-elsewhere")
    assert [bucket["Name"] for bucket in own_buckets(s3)] == [NAME]


def test_a_bucket_without_the_tag_is_refused(s3) -> None:
    s3.create_bucket(Bucket=NAME, CreateBucketConfiguration={"LocationConstraint": REGION})
    with pytest.raises(ConfigError, match="not rayrig's") as caught:
        ensure(s3)
    assert "rayrig:keep" in str(caught.value)


def test_somebody_elses_bucket_is_refused(s3) -> None:
    with Stubber(s3) as stub:  # moto does not look at ExpectedBucketOwner
        asked = {"Bucket": NAME, "ExpectedBucketOwner": DEFAULT_ACCOUNT_ID}
        stub.add_client_error("head_bucket", "403", "Forbidden", http_status_code=403, expected_params=asked)
        with pytest.raises(ConfigError, match="cannot be used from account") as caught:
            ensure(s3)
    assert "pulumi config set rayrig:storage" in str(caught.value)


def test_a_bucket_of_another_region_is_refused(s3) -> None:
    ensure(s3)
    with pytest.raises(ConfigError, match=r"is in eu-west-1, the cluster in us-east-1"):
        ensure(aws_client("s3", "us-east-1"), region="us-east-1")


@pytest.mark.usefixtures("s3")
def test_us_east_1_takes_no_location() -> None:
    assert ensure(aws_client("s3", "us-east-1"), region="us-east-1") is False


def test_gone_is_believed_only_when_every_look_says_so(s3) -> None:
    looked = []

    def pause(seconds: float) -> None:
        looked.append(seconds)
        ensure(s3)

    patience = Patience(deadline_seconds=1, interval_seconds=1, pause=pause)
    assert not bucket_is_gone(s3, NAME, account_id=DEFAULT_ACCOUNT_ID, region=REGION, patience=patience)
    assert looked
    s3.delete_bucket(Bucket=NAME)
    assert bucket_is_gone(s3, NAME, account_id=DEFAULT_ACCOUNT_ID, region=REGION, patience=TWICE)


def test_only_own_prefixes_go_and_the_bucket_stays_for_others(s3) -> None:
    ensure(s3)
    for key in ("runs/one/a", "runs/one/a", "runs/one/b", "runs/other/a"):
        s3.put_object(Bucket=NAME, Key=key, Body=b"x")
    s3.delete_object(Bucket=NAME, Key="runs/one/b")
    emptied = delete(s3, "runs/one/")
    assert (emptied.versions, emptied.bucket_deleted) == (4, False)
    left = s3.list_object_versions(Bucket=NAME)
    assert [version["Key"] for version in left["Versions"]] == ["runs/other/a"]
    assert "DeleteMarkers" not in left


def test_the_bucket_goes_when_nothing_else_is_in_it(s3) -> None:
    ensure(s3)
    s3.put_object(Bucket=NAME, Key="runs/one/a", Body=b"x")
    s3.create_multipart_upload(Bucket=NAME, Key="runs/one/big")
    assert delete(s3, "runs/one/").bucket_deleted
    with pytest.raises(ClientError, match="404"):
        s3.head_bucket(Bucket=NAME)
    assert delete(s3, "runs/one/").bucket_deleted


def test_a_bucket_that_is_not_rayrigs_is_never_emptied(s3) -> None:
    s3.create_bucket(Bucket=NAME, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket=NAME, Key="runs/one/a", Body=b"x")
    with pytest.raises(ConfigError, match="not rayrig's"):
        delete(s3, "runs/one/")
    assert s3.list_objects_v2(Bucket=NAME)["KeyCount"] == 1


@pytest.mark.parametrize("prefix", ["", "/", "runs/", "runs", "/runs/one/", "runs//", "runs/one"])
def test_a_prefix_that_others_share_is_refused(s3, prefix: str) -> None:
    assert not is_own_prefix(prefix)
    ensure(s3)
    with pytest.raises(ConfigError, match="other stacks"):
        delete(s3, prefix)


def test_size_counts_old_versions_but_not_as_objects(s3) -> None:
    ensure(s3)
    for body in (b"12345", b"123"):
        s3.put_object(Bucket=NAME, Key="runs/one/a", Body=body)
    size = measure_bucket(s3, NAME)
    assert (size.size_bytes, size.objects, size.complete) == (8, 1, True)
    assert size.usd_per_month == pytest.approx(8e-9 * 0.023)
