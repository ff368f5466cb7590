"""Runs infra's resources against a monitor that records every request as the engine would get it."""

import dataclasses
from typing import Any

import pulumi
from pulumi.runtime import mocks, rpc

from account.ami import Ami
from account.identity import Caller
from account.offerings import InstanceType
from contract.inventory import Endpoint, EndpointKind
from infra.facts import AccountFacts
from infra.program import Checked, build
from infra.spec import ClusterSpec

ACCOUNT, REGION, STACK, CLUSTER = "123456789012", "eu-west-1", "dev", "dev-a1b2c3"
DIGEST = "sha256:" + "ab" * 32
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGN1cnZlMjU1MTlrZXkhISEhISEhISEhISEhISEhISEh"
GIB = 1024**3

CPU_TYPE = InstanceType(
    name="m7i.large",
    cpu_count=2,
    memory_bytes=8 * GIB,
    gpu_count=0,
    gpu_model=None,
    gpu_manufacturer=None,
    gpu_memory_bytes=0,
    architectures=("x86_64",),
    network="Up to 12.5 Gigabit",
)
GPU_TYPE = dataclasses.replace(
    CPU_TYPE,
    name="g4dn.xlarge",
    cpu_count=4,
    memory_bytes=16 * GIB,
    gpu_count=1,
    gpu_model="T4",
    gpu_manufacturer="NVIDIA",
    gpu_memory_bytes=16 * GIB,
)


def spec(**changes: Any) -> ClusterSpec:
    given = {"region": REGION, "access_cidr": "203.0.113.7/32", "image": f"registry/ray@{DIGEST}"}
    return ClusterSpec.model_validate(given | changes)


def facts(
    *types: InstanceType, zones: tuple[str, ...] | None = ("eu-west-1a",), url: str | None = None
) -> AccountFacts:
    known = types or (CPU_TYPE, GPU_TYPE)
    return AccountFacts(
        caller=Caller(account_id=ACCOUNT, arn=f"arn:aws:iam::{ACCOUNT}:user/alice"),
        endpoint=Endpoint(kind=EndpointKind.REHEARSAL if url else EndpointKind.AWS, url=url),
        types={found.name: found for found in known},
        zones=zones,
        amis={found.name: Ami(id=f"ami-{'gpu' if found.gpu_count else 'cpu'}", root_bytes=8 * GIB) for found in known},
    )


def checked(url: str | None = None, **changes: Any) -> Checked:
    return Checked(spec=spec(**changes), facts=facts(url=url), public_key=PUBLIC_KEY, stack=STACK)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Registered:
    """One resource as the engine was asked to make it."""

    type: str
    name: str
    urn: str
    custom: bool
    inputs: dict[str, Any]
    dependencies: frozenset[str]
    parent: str
    provider: str
    deleted_with: str
    ignore_changes: tuple[str, ...]
    replace_on_changes: tuple[str, ...]
    create_timeout: str


class Recorder(mocks.MockMonitor):
    """Answers like a provider, records like an engine; in preview it answers like one that knows nothing yet."""

    def __init__(self, *, preview: bool) -> None:
        super().__init__(mocks=Answers(preview=preview))
        self.requests: list[Registered] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - gRPC's name
        answer = super().RegisterResource(request)
        if request.type != "pulumi:pulumi:Stack":
            self.requests.append(
                Registered(
                    type=request.type,
                    name=request.name,
                    urn=answer.urn,
                    custom=request.custom,
                    inputs=rpc.deserialize_properties(request.object, keep_unknowns=True),
                    dependencies=frozenset(request.dependencies),
                    parent=request.parent,
                    provider=request.provider,
                    deleted_with=request.deletedWith,
                    ignore_changes=tuple(request.ignoreChanges),
                    replace_on_changes=tuple(request.replaceOnChanges),
                    create_timeout=request.customTimeouts.create,
                )
            )
        return answer


class Answers(pulumi.runtime.Mocks):
    """What the providers add to a resource's inputs."""

    def __init__(self, *, preview: bool) -> None:
        self._preview = preview
        self._addresses = 10

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        if self._preview and args.typ != "pulumi:providers:aws":
            return "", dict(args.inputs)
        return f"{args.name}-id", {**args.inputs, **self._computed(args)}

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"the program asks through account/, not by {args.token}")

    def _computed(self, args: pulumi.runtime.MockResourceArgs) -> dict[str, Any]:
        self._addresses += 1
        moments = {"createdAt": "2026-12-01T00:00:00Z", "deadline": "2026-12-01T12:00:00Z", "expired": False}
        return {
            "aws:ec2/subnet:Subnet": {"availabilityZone": f"{REGION}a"},
            "aws:ec2/keyPair:KeyPair": {"keyName": "person-1"},
            "aws:iam/role:Role": {"name": "node-1", "uniqueId": "AROAEXAMPLE"},
            "aws:iam/instanceProfile:InstanceProfile": {"name": "profile-1"},
            "aws:ec2/instance:Instance": {
                "privateIp": f"10.77.0.{self._addresses}",
                "publicIp": f"203.0.113.{self._addresses}",
            },
            "rayrig:index:Cluster": {"clusterId": CLUSTER, **moments},
            "rayrig:index:KeptBucket": {"arn": f"arn:aws:s3:::{args.inputs.get('bucket')}", "adopted": False},
            "rayrig:index:Node": {"hostKey": f"ssh-ed25519 AAAA{args.name}", "versions": {}, "stageSeconds": {}},
            "rayrig:index:RayHead": {"address": "10.77.0.4:6379", "stageSeconds": {}},
            "rayrig:index:RayFleet": {"state": "ready", "versions": {"ray": "2.60.0"}, "stageSeconds": {}},
        }.get(args.typ, {})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording:
    """A whole run.

    Attributes:
        inventory: the `cluster` output; None when it is not known yet.
    """

    resources: tuple[Registered, ...]
    inventory: dict[str, Any] | None

    def of(self, kind: str) -> list[Registered]:
        return [resource for resource in self.resources if resource.type == kind]

    def one(self, kind: str) -> Registered:
        (only,) = self.of(kind)
        return only


def record(plan: Checked, *, preview: bool = False) -> Recording:
    recorder = Recorder(preview=preview)
    pulumi.runtime.set_mocks(recorder.mocks, project="rayrig", stack=STACK, preview=preview, monitor=recorder)
    exported: dict[str, Any] = {}

    @pulumi.runtime.test
    def run() -> pulumi.Output[None]:
        build(plan)
        output = pulumi.runtime.get_root_resource().outputs["cluster"]
        return pulumi.Output.from_input(output).apply(lambda value: exported.update(cluster=value))

    run()
    return Recording(resources=tuple(recorder.requests), inventory=exported.get("cluster"))
