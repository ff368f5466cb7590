"""What nodes and person are to AWS: the instance role, and the key pair that nodes let in."""

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from contract import names
from infra.custom import Cluster
from infra.tags import Tags


@dataclass(frozen=True, kw_only=True)
class IdentityArgs:
    """What Identity needs.

    Attributes:
        cluster: everything depends on it directly, so that it is deleted last.
        bucket_arn: of the results bucket.
        runs_prefix: what nodes read and write there, with the slash.
        public_key: the person's SSH key, `TYPE BASE64`.
    """

    cluster: Cluster
    tags: Tags
    bucket_arn: pulumi.Input[str]
    runs_prefix: str
    public_key: str


class Identity(pulumi.ComponentResource):
    """One least-privilege role for head and workers, and the person's key pair.

    Attributes:
        role: the instance role.
        policy: what it may do; a booting node needs it in place.
        profile: what instances carry.
        key_pair: the person's.
    """

    def __init__(self, name: str, args: IdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("rayrig:cluster:Identity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, depends_on=[args.cluster])
        self.role = aws.iam.Role(
            f"{name}-node",
            assume_role_policy=trust_policy(),
            description="Nodes of a rayrig cluster",
            tags=args.tags.named("node"),
            opts=child,
        )
        self.policy = aws.iam.RolePolicy(
            f"{name}-node",
            role=self.role.name,
            policy=pulumi.Output.all(args.bucket_arn, args.cluster.cluster_id).apply(
                lambda known: node_policy(bucket_arn=known[0], cluster_id=known[1], runs_prefix=args.runs_prefix)
            ),
            opts=child,
        )
        self.profile = aws.iam.InstanceProfile(
            f"{name}-node", role=self.role.name, tags=args.tags.named("node"), opts=child
        )
        self.key_pair = aws.ec2.KeyPair(
            f"{name}-person",
            public_key=args.public_key,
            tags=args.tags.named("person"),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[args.cluster],
                # It is read at first boot only; another person's `up` must not replace every node.
                ignore_changes=["publicKey"],
            ),
        )
        self.register_outputs({"roleId": self.role.unique_id})


def trust_policy() -> str:
    """Who may take the role: EC2, for instances."""
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}
            ],
        }
    )


def node_policy(*, bucket_arn: str, cluster_id: str, runs_prefix: str) -> str:
    """What any job on the cluster may do, since every job is this role: this stack's runs, readiness, one host key.

    Args:
        bucket_arn: of the results bucket.
        cluster_id: the cluster.
        runs_prefix: what nodes read and write, with the slash.
    """
    readiness = names.readiness_prefix(cluster_id)
    own_host_key = names.host_key_object(cluster_id, "${aws:userid}")
    statements: list[dict[str, object]] = [
        {
            "Sid": "ListRuns",
            "Effect": "Allow",
            "Action": ["s3:ListBucket", "s3:ListBucketMultipartUploads"],
            "Resource": bucket_arn,
            "Condition": {"StringLike": {"s3:prefix": [runs_prefix.rstrip("/"), f"{runs_prefix}*", f"{readiness}*"]}},
        },
        {
            # s3fs asks for it before it writes; refused, it would try to create the bucket.
            "Sid": "KnowTheBucket",
            "Effect": "Allow",
            "Action": "s3:GetBucketLocation",
            "Resource": bucket_arn,
        },
        {
            "Sid": "UseRuns",
            "Effect": "Allow",
            "Action": [
                "s3:GetObject",
                "s3:PutObject",
                "s3:DeleteObject",
                "s3:AbortMultipartUpload",
                "s3:ListMultipartUploadParts",
            ],
            "Resource": f"{bucket_arn}/{runs_prefix}*",
        },
        {
            "Sid": "ProveReadiness",
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
            "Resource": f"{bucket_arn}/{readiness}*",
        },
        {
            # aws:userid is ROLE-ID:INSTANCE-ID, set by EC2: no other node can write here, and nobody can overwrite.
            "Sid": "PublishOwnHostKeyOnce",
            "Effect": "Allow",
            "Action": "s3:PutObject",
            "Resource": f"{bucket_arn}/{own_host_key}",
            "Condition": {"Null": {"s3:if-none-match": "false"}},
        },
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})
