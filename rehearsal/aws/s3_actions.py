"""Which permissions an S3 request needs (Amazon S3 API reference, "required permissions" of each operation)."""

import io
import re
from collections.abc import Iterator
from urllib.parse import unquote

from rehearsal.aws.permissions import Asked
from rehearsal.aws.wire import Call, Environ

DELETE_KEY = re.compile(rb"<Key>([^<]*)</Key>")
OBJECT_READS = {"uploadId": "ListMultipartUploadParts", "tagging": "GetObjectTagging", "acl": "GetObjectAcl"}
BUCKET_READS = {
    "location": "GetBucketLocation",
    "versioning": "GetBucketVersioning",
    "tagging": "GetBucketTagging",
    "policy": "GetBucketPolicy",
    "encryption": "GetEncryptionConfiguration",
    "lifecycle": "GetLifecycleConfiguration",
    "uploads": "ListBucketMultipartUploads",
    "versions": "ListBucketVersions",
}


def needed(call: Call, environ: Environ) -> Iterator[Asked]:
    """The permissions, each with its resource and condition keys."""
    path = call.path.encode("latin-1").decode("utf-8", errors="replace").lstrip("/")
    bucket, _, key = path.partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    if not bucket:
        yield Asked(action="s3:ListAllMyBuckets")
    elif not key:
        yield from _of_bucket(call, environ, arn)
    else:
        yield from _of_object(call, environ, f"{arn}/{key}")


def _of_bucket(call: Call, environ: Environ, arn: str) -> Iterator[Asked]:
    context = {f"s3:{name}": call.params[name] for name in ("prefix", "delimiter") if name in call.params}
    if call.method == "POST" and "delete" in call.params:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        for key in DELETE_KEY.findall(body):
            yield Asked(action="s3:DeleteObject", resource=f"{arn}/{key.decode()}")
    elif call.method in {"GET", "HEAD"}:
        name = next((action for query, action in BUCKET_READS.items() if query in call.params), "ListBucket")
        yield Asked(action=f"s3:{name}", resource=arn, context=context)
    else:
        verb = {"PUT": "CreateBucket", "DELETE": "DeleteBucket"}.get(call.method, "PutBucketPolicy")
        subresource = next((query for query in BUCKET_READS if query in call.params), None)
        yield Asked(action=f"s3:PutBucket{subresource.title()}" if subresource else f"s3:{verb}", resource=arn)


def _of_object(call: Call, environ: Environ, arn: str) -> Iterator[Asked]:
    versioned = "Version" if "versionId" in call.params else ""
    if call.method in {"GET", "HEAD"}:
        name = next((action for query, action in OBJECT_READS.items() if query in call.params), None)
        yield Asked(action=f"s3:{name or f'GetObject{versioned}'}", resource=arn)
    elif call.method == "DELETE":
        name = "AbortMultipartUpload" if "uploadId" in call.params else f"DeleteObject{versioned}"
        yield Asked(action=f"s3:{name}", resource=arn)
    else:
        context = {
            key: environ[header]
            for key, header in (("s3:if-none-match", "HTTP_IF_NONE_MATCH"), ("s3:if-match", "HTTP_IF_MATCH"))
            if header in environ
        }
        yield Asked(action="s3:PutObject", resource=arn, context=context)
        source = environ.get("HTTP_X_AMZ_COPY_SOURCE")
        if source:
            yield Asked(action="s3:GetObject", resource=f"arn:aws:s3:::{unquote(source).lstrip('/')}")
