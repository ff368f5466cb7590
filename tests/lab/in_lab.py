"""One world with nodes for all lab tests: launches instances as anybody would, and looks at them from outside."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import boto3
import docker
from docker.errors import NotFound
from docker.models.containers import Container

from rehearsal.aws.images import IMAGES
from rehearsal.nodes.instances import LAB_ACCESS_KEY, LAB_SECRET_KEY
from rehearsal.world.places import Places
from rehearsal.world.record import INSTANCE_LABEL, WORLD_LABEL, Lab, World
from remote import Target
from remote.keys import Login, read_private_key

BUCKET = "lab-tests"
ROLE = "lab-tests"
PUBLISH = """#!/bin/sh
# Publishes the host key as the instance's role, with nothing but curl.
set -eu
token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' http://169.254.169.254/latest/api/token)
get() { curl -sf -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$1"; }
get "iam/security-credentials/$(get iam/security-credentials/)" >/run/lab-credentials
field() { python3 -c 'import json, sys; print(json.load(open("/run/lab-credentials"))[sys.argv[1]])' "$1"; }
curl -sf --aws-sigv4 aws:amz:REGION:s3 --user "$(field AccessKeyId):$(field SecretAccessKey)" \\
    -H "x-amz-security-token: $(field Token)" -T /etc/ssh/ssh_host_ed25519_key.pub \\
    "ENDPOINT/BUCKET/host-keys/$(get instance-id)"
echo done >/var/lib/lab-marker
"""


def until(happens: Callable[[], object], *, seconds: float, what: str = "") -> float:
    """Polls until it is true; returns the seconds that took."""
    start = time.monotonic()
    while not happens():
        waited = time.monotonic() - start
        assert waited < seconds, f"not within {seconds} s: {what or happens}"
        time.sleep(0.1)
    return time.monotonic() - start


@dataclass(kw_only=True)
class LabWorld:
    """A world and what a test does in it."""

    place: Places
    world: World
    docker: docker.DockerClient
    subnet_id: str = ""
    group_id: str = ""
    made: list[str] = field(default_factory=list)

    @property
    def lab(self) -> Lab:
        """Its lab; these worlds always have one."""
        assert self.world.lab is not None
        return self.world.lab

    def client(self, service: str) -> Any:
        """A boto3 client of the world's AWS."""
        session = boto3.session.Session(
            aws_access_key_id=LAB_ACCESS_KEY, aws_secret_access_key=LAB_SECRET_KEY, region_name=self.world.region
        )
        return session.client(service, endpoint_url=self.world.endpoint_url)

    def set_up(self) -> None:
        """A VPC with the lab's addresses, a group with the rules of a cluster, a key pair, a role and a bucket."""
        ec2, iam = self.client("ec2"), self.client("iam")
        vpc = ec2.create_vpc(CidrBlock=self.lab.cidr)["Vpc"]["VpcId"]
        block = self.lab.cidr.replace(".0.0/16", ".0.0/20")
        self.subnet_id = ec2.create_subnet(VpcId=vpc, CidrBlock=block)["Subnet"]["SubnetId"]
        ec2.modify_subnet_attribute(SubnetId=self.subnet_id, MapPublicIpOnLaunch={"Value": True})
        self.group_id = ec2.create_security_group(GroupName="lab", Description="lab", VpcId=vpc)["GroupId"]
        ec2.authorize_security_group_ingress(GroupId=self.group_id, IpPermissions=[self.ssh_rule(), self.own_rule()])
        public = self.place.ssh_key.with_suffix(".pub").read_bytes()
        ec2.import_key_pair(KeyName="lab", PublicKeyMaterial=public)
        iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
        allowed = {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{BUCKET}/host-keys/*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.put_role_policy(RoleName=ROLE, PolicyName="publish", PolicyDocument=policy)
        iam.create_instance_profile(InstanceProfileName=ROLE)
        iam.add_role_to_instance_profile(InstanceProfileName=ROLE, RoleName=ROLE)
        location = {"LocationConstraint": self.world.region}
        self.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=location)

    def ssh_rule(self) -> dict[str, Any]:
        """SSH from the person's side."""
        return self.user_rule(22)

    def user_rule(self, port: int) -> dict[str, Any]:
        """One port from the person's side."""
        cidr = f"{self.lab.user_address}/32"
        return {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": cidr}]}

    def own_rule(self) -> dict[str, Any]:
        """All TCP between members of the group."""
        pairs = [{"GroupId": self.group_id}]
        return {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "UserIdGroupPairs": pairs}

    def launch(self, count: int = 1, **changes: Any) -> list[str]:
        """Instances with the tests' role, group and user data; one call each, as Pulumi launches them."""
        user_data = PUBLISH.replace("ENDPOINT", self.world.endpoint_url).replace("REGION", self.world.region)
        request: dict[str, Any] = {
            "ImageId": IMAGES[0].image_id,
            "InstanceType": "m7i.large",
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": self.subnet_id,
            "SecurityGroupIds": [self.group_id],
            "KeyName": "lab",
            "IamInstanceProfile": {"Name": ROLE},
            "UserData": user_data.replace("BUCKET", BUCKET),
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        }
        ec2 = self.client("ec2")
        ids = [ec2.run_instances(**request | changes)["Instances"][0]["InstanceId"] for _ in range(count)]
        self.made += ids
        return ids

    def instance(self, instance_id: str) -> dict[str, Any]:
        """What DescribeInstances says of one."""
        answer = self.client("ec2").describe_instances(InstanceIds=[instance_id])
        found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
        return found

    def state(self, instance_id: str) -> str:
        """Its state in EC2's words."""
        return str(self.instance(instance_id)["State"]["Name"])

    def board(self) -> dict[str, dict[str, str]]:
        """The world's status: nodes and problems."""
        document: dict[str, dict[str, str]] = json.loads(self.place.status.read_text())
        return document

    def container(self, instance_id: str) -> Container | None:
        """A node's container; None when there is none."""
        labels = [f"{WORLD_LABEL}={self.world.world_id}", f"{INSTANCE_LABEL}={instance_id}"]
        try:
            found = self.docker.containers.list(all=True, filters={"label": labels})
        except NotFound:
            return None
        return found[0] if found else None

    def on(self, instance_id: str, argv: Sequence[str]) -> tuple[int, str]:
        """Runs a command on a node past SSH and firewall; its exit code and output."""
        container = self.container(instance_id)
        assert container is not None
        result = container.exec_run(list(argv))
        return int(result.exit_code), result.output.decode().strip()

    def host_key(self, instance_id: str) -> str | None:
        """The host key that the node has published; None as long as it has not."""
        s3 = self.client("s3")
        try:
            text = s3.get_object(Bucket=BUCKET, Key=f"host-keys/{instance_id}")["Body"].read().decode()
        except s3.exceptions.NoSuchKey:
            return None
        return " ".join(text.split()[:2])

    def target(self, instance_id: str, *, seconds: float) -> Target:
        """Where to reach a node, once it has published its key."""
        until(lambda: self.host_key(instance_id), seconds=seconds, what=f"{instance_id} publishes its host key")
        host_key = self.host_key(instance_id)
        assert host_key is not None
        address = self.instance(instance_id)["PublicIpAddress"]
        return Target(name=instance_id, host=address, host_key=host_key, user="ubuntu")

    def login(self) -> Login:
        """The person's key in this world."""
        return Login(key=read_private_key(self.place.ssh_key), allow_agent=False, look_for_keys=False)

    def terminate(self, *instance_ids: str) -> None:
        """Ends instances and waits for their machines to be gone."""
        self.client("ec2").terminate_instances(InstanceIds=list(instance_ids))
        until(
            lambda: not any(self.container(i) for i in instance_ids),
            seconds=30,
            what=f"{instance_ids} have no container",
        )
