"""Whatever `wanted.json` lists, as plain resources: {name: [type, inputs, [names it depends on]]}; @name is its id."""

import json
import os
from pathlib import Path

import pulumi

wanted = json.loads(Path("wanted.json").read_text())["resources"]
url = os.environ["AWS_ENDPOINT_URL"]


class Provider(pulumi.ProviderResource):
    """The aws provider, without the weight of its SDK."""

    def __init__(self) -> None:
        inputs = {
            "region": "eu-west-1",
            "allowedAccountIds": json.dumps([os.environ["ENGINE_ACCOUNT"]]),
            "endpoints": json.dumps([{"ec2": url, "iam": url}]),
            "maxRetries": "3",
        }
        super().__init__("aws", "aws", inputs, pulumi.ResourceOptions(version="7.51.1"))


provider = Provider()
made: dict[str, pulumi.CustomResource] = {}


def resolved(value: object) -> object:
    """The value with every @name turned into that resource's id."""
    if isinstance(value, str) and value.startswith("@"):
        return made[value[1:]].id
    if isinstance(value, list):
        return [resolved(each) for each in value]
    return value


for name, (token, inputs, needs) in wanted.items():
    timeouts = pulumi.CustomTimeouts(create="5s", delete="2s")
    opts = pulumi.ResourceOptions(
        provider=provider, depends_on=[made[need] for need in needs], custom_timeouts=timeouts
    )
    made[name] = pulumi.CustomResource(token, name, {key: resolved(value) for key, value in inputs.items()}, opts)
