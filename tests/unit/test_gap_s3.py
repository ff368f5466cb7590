"""S3 as the nodes use it: an object that must not be overwritten."""

import pytest
from botocore.exceptions import ClientError
from in_double import REGION, aws, client


def test_put_with_if_none_match_does_not_overwrite():
    with aws() as server:
        s3 = client(server, "s3")
        s3.create_bucket(Bucket="results-of-keys", CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket="results-of-keys", Key="clusters/c/host-keys/a:i", Body=b"first", IfNoneMatch="*")
        with pytest.raises(ClientError) as caught:
            s3.put_object(Bucket="results-of-keys", Key="clusters/c/host-keys/a:i", Body=b"second", IfNoneMatch="*")
        assert caught.value.response["Error"]["Code"] == "PreconditionFailed"
        assert s3.get_object(Bucket="results-of-keys", Key="clusters/c/host-keys/a:i")["Body"].read() == b"first"
