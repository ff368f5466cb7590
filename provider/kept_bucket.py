"""`rayrig:index:KeptBucket`: the results bucket, created or adopted, kept on destroy unless `keep` is false."""

from typing import Any, ClassVar

from account.clients import client
from account.identity import caller
from account.kept_bucket import bucket_is_gone, delete_prefixes, ensure_kept_bucket, is_own_prefix
from contract.resources import Home, KeptBucketInputs, KeptBucketOutputs
from provider.check import Failure
from provider.operation import Operation
from provider.resource import Created, Resource
from provider.values import UNKNOWN, Values

SHOWS_SECONDS = 30.0
"""What a new bucket may take to show everywhere."""
GONE_SECONDS = 2.0
"""Over which an absent bucket is asked for twice."""


class KeptBucket(Resource[KeptBucketInputs, KeptBucketOutputs]):
    """Outlives clusters: several stacks may hold the same bucket, each with prefixes of its own."""

    pulumi_type: ClassVar = "rayrig:index:KeptBucket"
    replaced_by: ClassVar = ("home", "bucket")
    inputs = KeptBucketInputs
    outputs = KeptBucketOutputs

    def more_failures(self, inputs: Values, olds: Values) -> tuple[Failure, ...]:
        """Results are deleted by `destroy` alone, and then only what lies in a folder of this stack."""
        bucket, before = inputs.get("bucket"), olds.get("bucket")
        moved = bucket != UNKNOWN and before is not None and bucket != before
        if moved and olds.get("keep") is False:
            reason = (
                f"moving from s3://{before} would delete this stack's results there, since keepResults is false. Next: "
                "`pulumi config set keepResults true` and `pulumi up` with the old name, then change it"
            )
            return (Failure(property="bucket", reason=reason),)
        prefixes = inputs.get("prefixes")
        if not isinstance(prefixes, list):
            return ()
        return tuple(
            Failure(
                property=f"prefixes[{index}]",
                reason=f"prefixes[{index}]: {prefix!r} must name a folder in a folder, such as runs/STACK/",
            )
            for index, prefix in enumerate(prefixes)
            if isinstance(prefix, str) and prefix != UNKNOWN and not is_own_prefix(prefix)
        )

    def create(self, inputs: KeptBucketInputs, operation: Operation) -> Created[KeptBucketOutputs]:
        """Makes the bucket, or adopts this account's own that bears `rayrig:keep`."""
        home = inputs.home
        s3 = _s3(home)
        owner = caller(client("sts", region=home.region, endpoint=home.endpoint)).owner
        adopted = ensure_kept_bucket(
            s3,
            inputs.bucket,
            account_id=home.account_id,
            region=home.region,
            owner=owner,
            patience=operation.patience(deadline_seconds=SHOWS_SECONDS, interval_seconds=1.0),
        )
        operation.report("adopted" if adopted else "created")
        return Created(id=inputs.bucket, outputs=_outputs(inputs, s3, adopted=adopted))

    def read(self, state: KeptBucketOutputs, operation: Operation) -> KeptBucketOutputs | None:
        """As it is; None when S3 said twice that it does not exist."""
        gone = bucket_is_gone(
            _s3(state.home),
            state.bucket,
            account_id=state.home.account_id,
            region=state.home.region,
            patience=operation.patience(deadline_seconds=GONE_SECONDS, interval_seconds=GONE_SECONDS),
        )
        return None if gone else state

    def update(self, state: KeptBucketOutputs, inputs: KeptBucketInputs, operation: Operation) -> KeptBucketOutputs:
        """Records what a destroy shall do; the bucket itself does not change."""
        del operation
        return state.model_copy(update={"keep": inputs.keep, "prefixes": inputs.prefixes})

    def delete(self, values: Values, operation: Operation) -> None:
        """Leaves it, or with `keep: false` deletes this stack's prefixes, and the bucket when nothing else is in it."""
        state = self.parse_state(values)
        if state.keep:
            operation.log.info(operation.urn, f"kept: s3://{state.bucket} stays, with everything in it")
            return
        operation.report("deleting this stack's results")
        emptied = delete_prefixes(
            _s3(state.home),
            state.bucket,
            state.prefixes,
            account_id=state.home.account_id,
            region=state.home.region,
        )
        rest = "and the bucket" if emptied.bucket_deleted else "the bucket stays, others use it"
        where = ", ".join(f"s3://{state.bucket}/{prefix}" for prefix in state.prefixes)
        operation.log.info(operation.urn, f"deleted {emptied.versions} object versions under {where}; {rest}")


def _s3(home: Home) -> Any:  # noqa: ANN401 - a boto client
    return client("s3", region=home.region, endpoint=home.endpoint)


def _outputs(inputs: KeptBucketInputs, s3: Any, *, adopted: bool) -> KeptBucketOutputs:  # noqa: ANN401 - a boto client
    fields: dict[str, Any] = {name: getattr(inputs, name) for name in KeptBucketInputs.model_fields}
    return KeptBucketOutputs(**fields, arn=f"arn:{s3.meta.partition}:s3:::{inputs.bucket}", adopted=adopted)
