"""The results bucket that outlives clusters: created or adopted, measured, and emptied only when asked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from account.clients import AwsError, aws_errors
from account.patience import Patience
from contract.errors import CloudError, ConfigError
from contract.names import TAG_KEEP, TAG_OWNER, results_bucket_name

OLD_VERSION_DAYS = 30
UNFINISHED_UPLOAD_DAYS = 7
DELETE_BATCH = 1000
"""DeleteObjects takes no more keys in one call."""
MEASURED_PAGES = 100
"""A listing page holds 1,000 versions; beyond 100,000 the size is given as "at least"."""
S3_STANDARD_USD_PER_GB_MONTH = 0.023
"""List price of S3 Standard, first 50 TB, in us-east-1 and eu-west-1 (aws.amazon.com/s3/pricing, 2026); others differ
by up to a third."""

LIFECYCLE_RULES: tuple[dict[str, Any], ...] = (
    {
        "ID": "rayrig-old-versions",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": OLD_VERSION_DAYS},
        "Expiration": {"ExpiredObjectDeleteMarker": True},
    },
    {
        "ID": "rayrig-unfinished-uploads",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": UNFINISHED_UPLOAD_DAYS},
    },
)
_ALL_BLOCKED = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}


@dataclass(frozen=True, kw_only=True)
class BucketSize:
    """What a bucket holds, old versions included.

    Attributes:
        complete: False when it holds more than was counted; the figures are then lower bounds.
    """

    size_bytes: int
    objects: int
    complete: bool

    @property
    def usd_per_month(self) -> float:
        """Storage alone, at S3 Standard's list price."""
        return self.size_bytes / 1e9 * S3_STANDARD_USD_PER_GB_MONTH


@dataclass(frozen=True, kw_only=True)
class Emptied:
    """What `keep: false` deleted.

    Attributes:
        versions: object versions and delete markers that were deleted.
        bucket_deleted: whether the bucket itself went, because nothing else was in it.
    """

    versions: int
    bucket_deleted: bool


def ensure_kept_bucket(s3: Any, bucket: str, *, account_id: str, region: str, owner: str, patience: Patience) -> bool:  # noqa: ANN401 - a boto client
    """Makes the bucket, or adopts the one that is there; True when adopted.

    A bucket is adopted only when it belongs to this account and bears `rayrig:keep`; an empty one without any tag, of
    rayrig's own default name or made since we looked, is a creation that was interrupted, and gets the tag. Settings
    that are missing are put in place; settings that differ are left as they are.

    Args:
        s3: an S3 client of the region.
        bucket: its name.
        account_id: who must own it.
        region: where it must be.
        owner: who asks, for the tag `rayrig:owner`.
        patience: how long a new bucket may take to show.

    Raises:
        ConfigError: the name belongs to somebody else, to another region, or to a bucket that is not rayrig's.
        CloudError: S3 refused, or did not answer.
    """
    adopted = bucket_exists(s3, bucket, account_id=account_id, region=region)
    if adopted:
        if bucket == results_bucket_name(account_id, region):
            _finish_creation(s3, bucket, owner=owner)
        require_kept(s3, bucket)
    else:
        adopted = not _create(s3, bucket, region=region, owner=owner)
        if adopted:  # somebody of this account made it in the meantime, or S3's answer to us was lost
            _finish_creation(s3, bucket, owner=owner)
            require_kept(s3, bucket)
        _wait_until_seen(s3, bucket, account_id=account_id, region=region, patience=patience)
    _secure(s3, bucket)
    return adopted


def bucket_exists(s3: Any, bucket: str, *, account_id: str, region: str) -> bool:  # noqa: ANN401 - a boto client
    """Whether the bucket exists as this account's, in this region.

    Raises:
        ConfigError: it exists, but elsewhere or as somebody else's.
        CloudError: S3 refused for another reason, or did not answer.
    """
    try:
        with aws_errors("cannot look at the results bucket", where=bucket):
            reply = s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=account_id)
    except AwsError as error:
        if error.not_found:
            return False
        if error.code in {"403", "AccessDenied", "Forbidden"}:
            raise ConfigError(
                f"the bucket name {bucket!r} cannot be used from account {account_id}",
                where="rayrig:storage",
                why=f"it belongs to another account, or its policy shuts us out ({error.why})",
                next_step="pulumi config set rayrig:storage SOME-OTHER-NAME",
            ) from error
        if error.code in {"301", "400", "PermanentRedirect", "AuthorizationHeaderMalformed"}:
            raise _wrong_region(bucket, "another region", region) from error
        raise
    found = reply.get("BucketRegion") or reply["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region")
    if found and found != region:
        raise _wrong_region(bucket, found, region)
    return True


def _wrong_region(bucket: str, found: str, region: str) -> ConfigError:
    return ConfigError(
        f"the bucket {bucket!r} is in {found}, the cluster in {region}",
        where="rayrig:storage",
        why="results would cross regions, which is slow and billed",
        next_step="pulumi config set rayrig:storage SOME-OTHER-NAME",
    )


def bucket_is_gone(s3: Any, bucket: str, *, account_id: str, region: str, patience: Patience) -> bool:  # noqa: ANN401 - a boto client
    """Whether the bucket no longer exists, asked again until `patience` ends before it is believed.

    Raises:
        ConfigError: it exists, but elsewhere or as somebody else's.
        CloudError: S3 refused, or did not answer.
    """
    return not any(bucket_exists(s3, bucket, account_id=account_id, region=region) for _ in patience.rounds())


def bucket_tags(s3: Any, bucket: str) -> dict[str, str]:  # noqa: ANN401 - a boto client
    """A bucket's tags; empty when it has none, is gone, or is in a region that this client cannot ask.

    Raises:
        CloudError: S3 refused, or did not answer.
    """
    try:
        with aws_errors("cannot read a bucket's tags", where=bucket):
            reply = s3.get_bucket_tagging(Bucket=bucket)
    except AwsError as error:
        if error.not_found or error.code in {"NoSuchTagSet", "PermanentRedirect", "AuthorizationHeaderMalformed"}:
            return {}
        raise
    return {tag["Key"]: tag["Value"] for tag in reply["TagSet"]}


def own_buckets(s3: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a boto client
    """The account's buckets in the client's region; others hold nothing of ours, and may answer it with any error.

    Raises:
        ClientError, BotoCoreError: S3 refused, or did not answer (the caller says what for).
    """
    pages = s3.get_paginator("list_buckets").paginate(BucketRegion=s3.meta.region_name)
    return [bucket for page in pages for bucket in page["Buckets"]]


def require_kept(s3: Any, bucket: str) -> None:  # noqa: ANN401 - a boto client
    """Raises ConfigError unless the bucket bears `rayrig:keep`, and so is rayrig's to use."""
    if TAG_KEEP not in bucket_tags(s3, bucket):
        raise ConfigError(
            f"the bucket {bucket!r} exists but is not rayrig's",
            where="rayrig:storage",
            why=f"it does not bear the tag {TAG_KEEP}",
            next_step=(
                "pulumi config set rayrig:storage SOME-OTHER-NAME, or, to give this bucket to rayrig, "
                f"tag it {TAG_KEEP}=true"
            ),
        )


def _create(s3: Any, bucket: str, *, region: str, owner: str) -> bool:  # noqa: ANN401 - a boto client
    """True when made, False when this account has it already."""
    arguments: dict[str, Any] = {"Bucket": bucket, "ObjectOwnership": "BucketOwnerEnforced"}
    if region != "us-east-1":  # which S3 wants left out
        arguments["CreateBucketConfiguration"] = {"LocationConstraint": region}
    try:
        with aws_errors("cannot create the results bucket", where=bucket):
            s3.create_bucket(**arguments)
    except AwsError as error:
        if error.code == "BucketAlreadyOwnedByYou":
            return False
        if error.code == "BucketAlreadyExists":
            raise ConfigError(
                f"the bucket name {bucket!r} is taken by another account",
                where="rayrig:storage",
                next_step="pulumi config set rayrig:storage SOME-OTHER-NAME",
            ) from error
        raise
    # At once: a bucket without this tag is not adopted, should the rest be interrupted.
    _mark(s3, bucket, owner=owner)
    return True


def _mark(s3: Any, bucket: str, *, owner: str) -> None:  # noqa: ANN401 - a boto client
    tags = [{"Key": TAG_KEEP, "Value": "true"}, {"Key": TAG_OWNER, "Value": owner}]
    with aws_errors("cannot tag the results bucket", where=bucket):
        s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})


def _finish_creation(s3: Any, bucket: str, *, owner: str) -> None:  # noqa: ANN401 - a boto client
    """Tags a bucket that was made but not tagged: one that is empty and bears no tag at all."""
    if not bucket_tags(s3, bucket) and _is_empty(s3, bucket):
        _mark(s3, bucket, owner=owner)


def _is_empty(s3: Any, bucket: str) -> bool:  # noqa: ANN401 - a boto client
    with aws_errors("cannot look into the results bucket", where=bucket):
        found = s3.list_object_versions(Bucket=bucket, MaxKeys=1)
    return not found.get("Versions") and not found.get("DeleteMarkers")


def _wait_until_seen(s3: Any, bucket: str, *, account_id: str, region: str, patience: Patience) -> None:  # noqa: ANN401 - a boto client
    for _ in patience.rounds():
        if bucket_exists(s3, bucket, account_id=account_id, region=region):
            return
    raise CloudError(
        "the new results bucket does not show",
        where=bucket,
        why=f"S3 still answers NotFound after {patience.deadline_seconds:.0f} s",
        next_step="pulumi up again",
    )


def _secure(s3: Any, bucket: str) -> None:  # noqa: ANN401 - a boto client
    with aws_errors("cannot set up the results bucket", where=bucket):
        if _setting(s3.get_public_access_block, "PublicAccessBlockConfiguration", bucket) != _ALL_BLOCKED:
            s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=_ALL_BLOCKED)
        if s3.get_bucket_versioning(Bucket=bucket).get("Status") != "Enabled":
            s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        if _setting(s3.get_bucket_encryption, "ServerSideEncryptionConfiguration", bucket) is None:
            rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
            s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
        if _setting(s3.get_bucket_lifecycle_configuration, "Rules", bucket) is None:
            s3.put_bucket_lifecycle_configuration(
                Bucket=bucket, LifecycleConfiguration={"Rules": list(LIFECYCLE_RULES)}
            )


def _setting(get: Callable[..., dict[str, Any]], key: str, bucket: str) -> Any:  # noqa: ANN401 - S3's own shapes
    """A setting of the bucket; None when it was never set."""
    unset = {
        "NoSuchPublicAccessBlockConfiguration",
        "NoSuchLifecycleConfiguration",
        "ServerSideEncryptionConfigurationNotFoundError",
    }
    try:
        with aws_errors("cannot read a setting of the results bucket", where=bucket):
            return get(Bucket=bucket)[key]
    except AwsError as error:
        if error.code in unset:
            return None
        raise


def measure_bucket(s3: Any, bucket: str) -> BucketSize:  # noqa: ANN401 - a boto client
    """Adds up a bucket's objects and old versions, up to MEASURED_PAGES pages.

    Raises:
        CloudError: S3 refused, or did not answer.
    """
    size = objects = pages = 0
    complete = True
    with aws_errors("cannot measure the results bucket", where=bucket):
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            if pages == MEASURED_PAGES:
                complete = False
                break
            versions = page.get("Versions", [])
            size += sum(version["Size"] for version in versions)
            objects += sum(bool(version["IsLatest"]) for version in versions)
            pages += 1
    return BucketSize(size_bytes=size, objects=objects, complete=complete)


def delete_prefixes(s3: Any, bucket: str, prefixes: tuple[str, ...], *, account_id: str, region: str) -> Emptied:  # noqa: ANN401 - a boto client
    """Deletes every version under the prefixes, and the bucket when nothing else is in it.

    Raises:
        ConfigError: the bucket is not this account's or not rayrig's, or a prefix would take in other stacks.
        CloudError: S3 refused, or did not answer.
    """
    for prefix in prefixes:
        if not is_own_prefix(prefix):
            raise ConfigError(f"the prefix {prefix!r} takes in what other stacks wrote", where=bucket)
    if not bucket_exists(s3, bucket, account_id=account_id, region=region):
        return Emptied(versions=0, bucket_deleted=True)
    require_kept(s3, bucket)
    with aws_errors("cannot delete this stack's results", where=bucket):
        deleted = sum(_delete_versions(s3, bucket, prefix) for prefix in prefixes)
        for prefix in prefixes:
            _abort_uploads(s3, bucket, prefix)
        if not _is_empty(s3, bucket):
            return Emptied(versions=deleted, bucket_deleted=False)
        s3.delete_bucket(Bucket=bucket)
    return Emptied(versions=deleted, bucket_deleted=True)


def is_own_prefix(prefix: str) -> bool:
    """Whether a prefix names one folder (`runs/STACK/`) rather than a part of the bucket that others share."""
    parts = prefix.split("/")
    return prefix.endswith("/") and not prefix.startswith("/") and len(parts) > 2 and all(parts[:-1])  # noqa: PLR2004 - a folder in a folder


def _delete_versions(s3: Any, bucket: str, prefix: str) -> int:  # noqa: ANN401 - a boto client
    deleted = 0
    for batch in _batches(s3, bucket, prefix):
        reply = s3.delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})
        if failed := reply.get("Errors"):
            first = failed[0]
            raise CloudError(
                f"{len(failed)} object versions could not be deleted",
                where=f"s3://{bucket}/{prefix}",
                why=f"{first.get('Key')}: {first.get('Message')}",
            )
        deleted += len(batch)
    return deleted


def _batches(s3: Any, bucket: str, prefix: str) -> Iterator[list[dict[str, str]]]:  # noqa: ANN401 - a boto client
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    for page in pages:
        entries = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        keys = [{"Key": entry["Key"], "VersionId": entry["VersionId"]} for entry in entries]
        for start in range(0, len(keys), DELETE_BATCH):
            yield keys[start : start + DELETE_BATCH]


def _abort_uploads(s3: Any, bucket: str, prefix: str) -> None:  # noqa: ANN401 - a boto client
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
        for upload in page.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
