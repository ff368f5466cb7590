"""Where results go: the kept bucket."""

from dataclasses import dataclass

import pulumi

from contract import names
from contract.resources import Home
from infra.custom import Cluster, KeptBucket


@dataclass(frozen=True, kw_only=True)
class StorageArgs:
    """What Storage needs.

    Attributes:
        cluster: everything depends on it directly, so that it is deleted last.
        bucket: name of the bucket to make or adopt.
        keep: whether `destroy` leaves this stack's objects.
    """

    cluster: Cluster
    home: Home
    stack: str
    bucket: str
    keep: bool


class Storage(pulumi.ComponentResource):
    """The results bucket and this stack's prefixes in it.

    Attributes:
        results: the bucket.
        runs_prefix: key prefix of this stack's run directories, with the slash.
    """

    def __init__(self, name: str, args: StorageArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("rayrig:cluster:Storage", name, None, opts)
        self.runs_prefix = names.runs_prefix(args.stack)
        self.results = KeptBucket(
            f"{name}-results",
            {
                "home": args.home.to_wire(),
                "bucket": args.bucket,
                "keep": args.keep,
                "prefixes": [self.runs_prefix, args.cluster.cluster_id.apply(names.cluster_prefix)],
            },
            pulumi.ResourceOptions(parent=self, depends_on=[args.cluster]),
        )
        self.register_outputs({"bucket": self.results.bucket})
