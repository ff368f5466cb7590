"""Names, tags and object-store paths that more than one room must agree on."""

import re

TAG_CLUSTER = "rayrig:cluster"
"""On every resource of a cluster; its value is the cluster id."""
TAG_STACK = "rayrig:stack"
TAG_OWNER = "rayrig:owner"
TAG_NODE = "rayrig:node"
"""On instances: the node's name (`head`, `worker-1`)."""
TAG_ROLE = "rayrig:role"
TAG_DEADLINE = "rayrig:deadline"
"""On instances: when the cluster ends itself, RFC 3339 in UTC; nodes read it from the metadata service."""
TAG_KEEP = "rayrig:keep"
"""On what outlives clusters (results bucket); such resources bear no cluster tag."""

CLUSTER_ID_PATTERN = re.compile(r"^[a-z][a-z0-9-]{2,40}$")


def results_bucket_name(account_id: str, region: str) -> str:
    """Default name of the kept results bucket: one per account and region."""
    return f"rayrig-results-{account_id}-{region}"


def host_key_object(cluster_id: str, user_id: str) -> str:
    """Object key under which a node publishes its SSH host key.

    Args:
        cluster_id: the cluster.
        user_id: what IAM calls `aws:userid` for the node: ROLE-ID:INSTANCE-ID. The instance role may
            write only the path that ends with its own, and the instance id cannot be forged.
    """
    return f"clusters/{cluster_id}/host-keys/{user_id}"


def cluster_prefix(cluster_id: str) -> str:
    """Object prefix of what belongs to one cluster (host keys, readiness proofs, receipt), not to runs."""
    return f"clusters/{cluster_id}/"


def readiness_prefix(cluster_id: str) -> str:
    """What the names of all objects begin with that the proof of readiness writes: its nonces, and readiness.json."""
    return f"{cluster_prefix(cluster_id)}readiness"


def runs_prefix(stack: str) -> str:
    """Object prefix of a stack's run directories; they outlive the cluster."""
    return f"runs/{stack}/"


NODE_STATE_DIR = "/etc/rayrig"
"""On nodes: root-owned state of rayrig."""
TOKEN_PATH = "/etc/rayrig/ray_token"  # noqa: S105 - a path, not a token
"""On nodes: the Ray token, 0600, owned by the image's user (CONTAINER_UID)."""
CONTAINER_TOKEN_PATH = "/run/rayrig/ray_token"  # noqa: S105 - a path, not a token
"""In the Ray container: where TOKEN_PATH is mounted, read-only."""
RAY_CONTAINER = "rayrig-ray"
"""Name of the Ray container on every node."""
PROVE_AGAIN = "pulumi up --replace '**RayFleet::ray'"
"""Goes through every step on every node again. A plain `pulumi up` looks at instances only: it does not see a Ray
container that was stopped by hand, which Docker leaves stopped."""
CONTAINER_UID = 1000
"""User and group id that the image runs as; host directories bound into it belong to it."""
WORKER_RESOURCE = "rayrig_worker"
"""Custom Ray resource of worker nodes, as much as they have CPUs: `ray start --resources='{"rayrig_worker": 2}'`."""
