"""Errors read as one paragraph and carry their exit code."""

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from account.clients import AwsError, aws_errors, endpoint_from_environment
from contract.errors import ConfigError, RayrigError, StepError
from contract.exit_codes import ExitCode


def test_an_error_tells_what_where_why_and_next() -> None:
    error = StepError(
        "image: no such digest", where="worker-1", why="manifest unknown", next_step="pulumi config get image"
    )
    assert str(error) == "worker-1: image: no such digest. manifest unknown. Next: pulumi config get image"
    assert "\n" not in str(error)


def test_parts_are_optional() -> None:
    assert str(RayrigError("it broke")) == "it broke."


def test_a_wrong_configuration_is_a_usage_error() -> None:
    assert ConfigError("x").exit_code is ExitCode.USAGE
    assert RayrigError("x").exit_code is ExitCode.FAILURE


def test_aws_words_and_code_are_kept() -> None:
    refused = ClientError(
        {"Error": {"Code": "UnauthorizedOperation", "Message": "You are not authorized"}}, "DescribeInstances"
    )
    with pytest.raises(AwsError) as caught, aws_errors("cannot list instances"):
        raise refused
    assert caught.value.denied
    assert not caught.value.not_found
    assert "You are not authorized" in str(caught.value)


@pytest.mark.parametrize("code", ["InvalidInstanceID.NotFound", "NoSuchBucket", "NoSuchEntity", "ParameterNotFound"])
def test_not_found_is_told_apart(code: str) -> None:
    with pytest.raises(AwsError) as caught, aws_errors("x"):
        raise ClientError({"Error": {"Code": code, "Message": "gone"}}, "Op")
    assert caught.value.not_found
    assert not caught.value.denied


def test_missing_credentials_name_the_next_step() -> None:
    with pytest.raises(ConfigError, match="aws configure"), aws_errors("x"):
        raise NoCredentialsError


def test_an_endpoint_for_single_services_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000")
    with pytest.raises(ConfigError, match="unset AWS_ENDPOINT_URL_S3"):
        endpoint_from_environment()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:5000/")
    assert endpoint_from_environment().url == "http://127.0.0.1:5000"
