"""The double behind its own gRPC door, against moto on loopback: requests as the engine makes them."""

import json
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import boto3
import grpc
import httpx
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from rehearsal.aws.server import Server, serve
from rehearsal.double import lifecycle
from rehearsal.double.servicer import Servicer
from rehearsal.double.values import from_wire, to_wire

REGION = "eu-west-1"
UBUNTU = "ami-0a11ce0024040001"
SERVICES = ("ec2", "iam", "sts", "ssm", "s3")
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"},
        ],
    }
)
POLICY = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
)


@contextmanager
def aws(log: Path | None = None, *, weigh_policies: bool = False) -> Iterator[Server]:
    """An AWS of its own account, and this process a shell that talks to it."""
    account = f"0000{secrets.randbelow(10**8):08d}"
    with (
        serve(
            host="127.0.0.1",
            port=0,
            world_id="unit",
            account_id=account,
            region=REGION,
            public_cidr="198.18.77.0/24",
            request_log=log,
            weigh_policies=weigh_policies,
        ) as server,
        patch.dict(os.environ, AWS_ENDPOINT_URL=server.url),
    ):
        yield server


def client(server: Server, service: str):
    return boto3.client(
        service,
        region_name=REGION,
        endpoint_url=server.url,
        aws_access_key_id="unit",
        aws_secret_access_key="unit",
    )


def ask(server: Server, path: str, method: str = "GET", body: object = None) -> dict:
    """One of the rehearsal's own endpoints."""
    data = None if body is None else json.dumps(body).encode()
    answer = httpx.request(method, f"{server.url}/rayrig-rehearsal{path}", content=data, timeout=10, trust_env=False)
    return answer.raise_for_status().json()


def settings(server: Server, **more: object) -> dict:
    """Provider inputs as infra makes them."""
    return {
        "region": REGION,
        "allowedAccountIds": json.dumps([server.account_id]),
        "endpoints": json.dumps([dict.fromkeys(SERVICES, server.url)]),
        "maxRetries": "3",
        "skipMetadataApiCheck": "true",
        **more,
    }


class RefusedError(Exception):
    """The double's error, and the grpc error behind it."""


@dataclass
class Made:
    """A resource as the engine would keep it."""

    urn: str
    id: str
    inputs: dict
    state: dict


class Double:
    """Speaks to the double as the engine does."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.stub = provider_pb2_grpc.ResourceProviderStub(channel)

    def call(self, method: str, request: object):
        try:
            return getattr(self.stub, method)(request, timeout=60)
        except grpc.RpcError as error:
            raise RefusedError(error.details()) from error

    def configure(self, inputs: dict) -> None:
        self.call("Configure", provider_pb2.ConfigureRequest(args=to_wire(inputs)))

    def check(self, token: str, inputs: dict, olds: dict | None = None, name: str = "it") -> tuple[dict, dict]:
        request = provider_pb2.CheckRequest(
            urn=urn(token, name), news=to_wire(inputs), olds=to_wire(olds or {}), randomSeed=b"seed"
        )
        answer = self.call("Check", request)
        return from_wire(answer.inputs), {each.property: each.reason for each in answer.failures}

    def create(self, token: str, inputs: dict, *, name: str = "it", preview: bool = False) -> Made:
        checked, failures = self.check(token, inputs, name=name)
        assert failures == {}
        request = provider_pb2.CreateRequest(urn=urn(token, name), properties=to_wire(checked), preview=preview)
        answer = self.call("Create", request)
        return Made(urn=request.urn, id=answer.id, inputs=checked, state=from_wire(answer.properties))

    def read(self, made: Made) -> Made | None:
        request = provider_pb2.ReadRequest(
            id=made.id, urn=made.urn, properties=to_wire(made.state), inputs=to_wire(made.inputs)
        )
        answer = self.call("Read", request)
        if not answer.id:
            return None
        return Made(urn=made.urn, id=answer.id, inputs=from_wire(answer.inputs), state=from_wire(answer.properties))

    def checked(self, made: Made, inputs: dict) -> dict:
        token, name = made.urn.split("::")[2:]
        found, failures = self.check(token, inputs, olds=made.inputs, name=name)
        assert failures == {}
        return found

    def diff(self, made: Made, inputs: dict):
        request = provider_pb2.DiffRequest(
            id=made.id, urn=made.urn, olds=to_wire(made.state), news=to_wire(self.checked(made, inputs))
        )
        return self.call("Diff", request)

    def update(self, made: Made, inputs: dict, *, preview: bool = False) -> Made:
        news = self.checked(made, inputs)
        request = provider_pb2.UpdateRequest(
            id=made.id, urn=made.urn, olds=to_wire(made.state), news=to_wire(news), preview=preview
        )
        state = from_wire(self.call("Update", request).properties)
        return Made(urn=made.urn, id=made.id, inputs=news, state=state)

    def delete(self, made: Made, *, timeout: float = 2.0) -> None:
        request = provider_pb2.DeleteRequest(id=made.id, urn=made.urn, properties=to_wire(made.state), timeout=timeout)
        self.call("Delete", request)


def urn(token: str, name: str) -> str:
    return f"urn:pulumi:unit::double::{token}::{name}"


CONFIRM_SECONDS = 0.01
"""Instead of the third of a second that a person's rehearsal waits before it believes that something is gone."""


@contextmanager
def unconfigured() -> Iterator[Double]:
    before, lifecycle.CONFIRM_SECONDS = lifecycle.CONFIRM_SECONDS, CONFIRM_SECONDS
    server = grpc.server(ThreadPoolExecutor(8))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(lambda: None), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Double(channel)
    finally:
        server.stop(0).wait()
        lifecycle.CONFIRM_SECONDS = before


@contextmanager
def double_of(server: Server, **more: object) -> Iterator[Double]:
    with unconfigured() as double:
        double.configure(settings(server, accessKey="unit", secretKey="unit", **more))
        yield double


def network(double: Double) -> dict[str, Made]:
    """A VPC with a subnet, a security group and what an instance needs."""
    vpc = double.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.77.0.0/16"}, name="vpc")
    subnet = double.create(
        "aws:ec2/subnet:Subnet",
        {"vpcId": vpc.id, "cidrBlock": "10.77.0.0/20", "availabilityZone": "eu-west-1a", "mapPublicIpOnLaunch": True},
        name="subnet",
    )
    group = double.create("aws:ec2/securityGroup:SecurityGroup", {"vpcId": vpc.id}, name="group")
    return {"vpc": vpc, "subnet": subnet, "group": group}


def instance_inputs(made: dict[str, Made], **more: object) -> dict:
    return {
        "ami": UBUNTU,
        "instanceType": "m7i.large",
        "subnetId": made["subnet"].id,
        "vpcSecurityGroupIds": [made["group"].id],
        "instanceInitiatedShutdownBehavior": "terminate",
        "metadataOptions": {"httpTokens": "required", "instanceMetadataTags": "enabled"},
        "rootBlockDevice": {"volumeSize": 30, "volumeType": "gp3", "encrypted": True, "throughput": 250},
        **more,
    }
