"""The one boundary to AWS: clients with deadlines, and boto's errors turned into ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import boto3
import botocore.loaders
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
    SSOError,
)

from contract.errors import CloudError, ConfigError
from contract.inventory import Endpoint, EndpointKind

CONFIG = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "max_attempts": 4})

DENIED_CODES = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"})


def endpoint_from_environment() -> Endpoint:
    """The AWS that this shell talks to: AWS itself, unless the SDKs' own AWS_ENDPOINT_URL says otherwise.

    Raises:
        ConfigError: an endpoint is set for single services only: what is made there would be recorded as AWS's own.
    """
    url = os.environ.get("AWS_ENDPOINT_URL")
    single = sorted(name for name in os.environ if name.startswith("AWS_ENDPOINT_URL_") and os.environ[name])
    if single and not url:
        raise ConfigError(
            "some services of AWS are replaced, others are not",
            where=", ".join(single),
            next_step=f"unset {' '.join(single)}, or set AWS_ENDPOINT_URL for all of them",
        )
    return Endpoint(kind=EndpointKind.REHEARSAL, url=url.rstrip("/")) if url else Endpoint(kind=EndpointKind.AWS)


@cache
def _loader() -> botocore.loaders.Loader:
    """Botocore's data files, read once per process; a loader per client costs 0.1 s each."""
    return botocore.loaders.create_loader()


def session() -> Any:  # noqa: ANN401 - boto3 carries no types
    """A fresh boto3 session (credentials as the environment has them now) over shared data files."""
    core = botocore.session.Session()
    core.register_component("data_loader", _loader())
    return boto3.session.Session(botocore_session=core)


def client(service: str, *, region: str, endpoint: Endpoint) -> Any:  # noqa: ANN401 - boto's clients are made at run time
    """A boto3 client with bounded waits; raises ConfigError when no credentials or profile can be used."""
    with aws_errors(f"cannot use AWS {service}"):
        return session().client(service, region_name=region, endpoint_url=endpoint.url, config=CONFIG)


def error_code(error: ClientError) -> str:
    """AWS's own code of an error, such as `InvalidInstanceID.NotFound`."""
    return str(error.response.get("Error", {}).get("Code", "Unknown"))


@contextmanager
def aws_errors(what: str, *, where: str | None = None) -> Iterator[None]:
    """Turns what boto raises inside into ours, AWS's words kept.

    Raises:
        ConfigError: no credentials, no region, an unknown profile.
        CloudError: AWS refused or could not be reached; `.code` holds AWS's code, None when there was no answer.
    """
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound, SSOError) as error:
        raise ConfigError(
            "no usable AWS credentials", where=where, why=str(error), next_step="aws configure, or set AWS_PROFILE"
        ) from error
    except NoRegionError as error:
        raise ConfigError(
            "no AWS region is set", where=where, next_step="pulumi config set aws:region eu-west-1"
        ) from error
    except ClientError as error:
        raise AwsError(what, where=where, code=error_code(error), message=str(error)) from error
    except (EndpointConnectionError, ConnectTimeoutError, ReadTimeoutError) as error:
        raise AwsError(what, where=where, code=None, message=str(error)) from error
    except BotoCoreError as error:
        raise AwsError(what, where=where, code=None, message=str(error)) from error


class AwsError(CloudError):
    """AWS's own answer, or its absence.

    Attributes:
        code: AWS's error code; None when nothing answered.
    """

    def __init__(self, what: str, *, where: str | None, code: str | None, message: str) -> None:
        next_step = None
        if code is None:
            next_step = "check the network and, in rehearsal, `python -m rehearsal status`"
        elif code in DENIED_CODES:
            next_step = "ask for the permission named above, or use other credentials"
        elif code in {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "AuthFailure"}:
            next_step = "renew the AWS credentials (`aws sso login` or `aws configure`)"
        super().__init__(what, where=where, why=message, next_step=next_step)
        self.code = code

    @property
    def denied(self) -> bool:
        """Whether AWS refused for want of permission: then the fact asked for is unknown, not absent."""
        return self.code in DENIED_CODES

    @property
    def not_found(self) -> bool:
        """Whether AWS says that the thing does not exist."""
        return self.code is not None and (
            self.code.endswith((".NotFound", "NotFoundException"))
            or self.code in {"NoSuchEntity", "NoSuchBucket", "NoSuchKey", "404", "NotFound", "ParameterNotFound"}
        )
