"""The engine tests' AWS as a caller sees it."""

import boto3

from rehearsal.aws.server import Server

REGION = "eu-west-1"


def client_of(world: Server, service: str):
    return boto3.session.Session().client(
        service,
        region_name=REGION,
        endpoint_url=world.url,
        aws_access_key_id="person",
        aws_secret_access_key="person",
    )
