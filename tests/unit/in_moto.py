"""moto in this process, light: no table of AMIs to load."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import boto3
import pytest
from moto import mock_aws

REGION = "eu-west-1"
ANY_IMAGE = "ami-00000000000000000"
"""moto launches from an image that it doesn't know."""


@contextmanager
def in_moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty AWS for the calls of this process."""
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    monkeypatch.setattr("account.tagged.PARALLEL_CALLS", 1)  # moto's tables are not made for threads
    with mock_aws():
        yield


@cache
def aws_client(service: str, region: str = REGION) -> Any:
    """A client for tests, made once: making one costs more than most tests."""
    return boto3.session.Session(aws_access_key_id="lab", aws_secret_access_key="lab").client(
        service, region_name=region
    )
