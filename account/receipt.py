"""The receipt of a destroy: what is left (nothing, or it is no receipt), what is kept and what it all cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime

from account.clients import AwsError, aws_errors, client
from account.instances import InstanceFacts, tagged_instances
from account.kept_bucket import BucketSize, bucket_tags, measure_bucket, own_buckets
from account.patience import Patience
from account.prices import region_usd_per_hour, table
from account.tagged import Listing, list_tagged
from contract.errors import LeftoversError
from contract.inventory import EndpointKind, WireModel
from contract.names import TAG_CLUSTER, TAG_KEEP, cluster_prefix, results_bucket_name, runs_prefix
from contract.resources import ClusterOutputs, Home

CLEAN_ROUNDS = 2
"""Listings in a row that must show nothing: one may be behind the truth."""
REPORT_SECONDS = 5
"""How often the time waited is told."""
SHOWN_LEFTOVERS = 12
SECONDS_PER_HOUR = 3600


class LeftItem(WireModel):
    """Something that still bears the cluster's tag."""

    kind: str
    id: str
    detail: str = ""


class UnknownItem(WireModel):
    """A kind that could not be listed for want of permission."""

    kind: str
    why: str


class KeptItem(WireModel):
    """A bucket that stays, and what it costs to keep."""

    bucket: str
    objects: int
    size_bytes: int
    complete: bool
    """False: it holds more than was counted, the figures are lower bounds."""
    usd_per_month: float


class Receipt(WireModel):
    """What a destroy ended with; saved as JSON."""

    schema_version: Literal[1] = 1
    cluster_id: str
    stack: str
    owner: str
    home: Home
    created_at: AwareDatetime
    destroyed_at: AwareDatetime
    left: tuple[LeftItem, ...]
    unknown: tuple[UnknownItem, ...]
    kept: tuple[KeptItem, ...]
    instance_hours: dict[str, float]
    """Hours per instance type, of the instances that EC2 still shows (for about an hour after their end)."""
    usd: float | None
    """What the instances cost at list price; None when unpriced."""
    usd_note: str
    """What `usd` covers, or why there is none."""

    @property
    def lived_hours(self) -> float:
        """Hours from the cluster's creation to its destroy."""
        return (self.destroyed_at - self.created_at).total_seconds() / SECONDS_PER_HOUR


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What is known of a cluster's cost."""

    hours: dict[str, float]
    usd: float | None
    note: str


def settle(list_now: Callable[[], Listing], *, patience: Patience, report: Callable[[str], None]) -> Listing:
    """Lists until nothing is left, CLEAN_ROUNDS times in a row, or until `patience` ends; the last listing.

    Args:
        list_now: lists what bears the tag.
        patience: how long what is going may take to go.
        report: told what is waited for.
    """
    clean = 0
    listing = Listing()
    for waited in patience.rounds():
        listing = list_now()
        clean = 0 if listing.found else clean + 1
        if clean == CLEAN_ROUNDS:
            break
        if listing.found:
            report(f"waiting for {_names(listing)} to go ({waited - waited % REPORT_SECONDS:.0f} s)")
    return listing


def cost_of(instances: tuple[InstanceFacts, ...], *, now: datetime, usd_per_hour: Mapping[str, float]) -> Cost:
    """Hours per type and their price; unpriced as a whole as soon as one instance is, never a guess.

    Args:
        instances: the cluster's instances, ended ones included.
        now: the end of those whose end EC2 does not tell.
        usd_per_hour: on-demand list prices by instance type.
    """
    hours: dict[str, float] = {}
    unpriced: set[str] = set()
    usd = 0.0
    for facts in instances:
        if facts.launched_at is None:
            unpriced.add(facts.instance_type)
            continue
        lived = max(0.0, ((facts.ended_at or now) - facts.launched_at).total_seconds() / SECONDS_PER_HOUR)
        hours[facts.instance_type] = hours.get(facts.instance_type, 0.0) + lived
        price = None if facts.spot else usd_per_hour.get(facts.instance_type)
        if price is None:
            unpriced.add(f"{facts.instance_type}{' (spot)' if facts.spot else ''}")
        else:
            usd += lived * price
    if not instances:
        return Cost(hours=hours, usd=None, note="EC2 no longer shows any of its instances")
    if unpriced:
        return Cost(hours=hours, usd=None, note=f"no price known for {', '.join(sorted(unpriced))}")
    return Cost(
        hours=hours,
        usd=usd,
        note=f"instances at the list prices of {table().read_on}; disks, addresses and traffic not counted",
    )


def find_kept(s3: Any, *, home: Home, stack: str, cluster_id: str) -> tuple[tuple[str, BucketSize], ...]:  # noqa: ANN401 - a boto client
    """The region's kept buckets that hold something of this stack or cluster, the default one always, with their sizes.

    Raises:
        CloudError: S3 refused, or did not answer.
    """
    default = results_bucket_name(home.account_id, home.region)
    with aws_errors("cannot list buckets"):
        names = [bucket["Name"] for bucket in own_buckets(s3)]
    kept = []
    for name in names:
        if not _is_kept(s3, name):
            continue
        if name == default or any(
            _holds(s3, name, prefix) for prefix in (cluster_prefix(cluster_id), runs_prefix(stack))
        ):
            kept.append((name, measure_bucket(s3, name)))
    return tuple(kept)


def _is_kept(s3: Any, bucket: str) -> bool:  # noqa: ANN401 - a boto client
    try:
        tags = bucket_tags(s3, bucket)
    except AwsError as error:
        if error.denied:  # somebody else's affair in the same account
            return False
        raise
    return TAG_KEEP in tags


def _holds(s3: Any, bucket: str, prefix: str) -> bool:  # noqa: ANN401 - a boto client
    with aws_errors("cannot look into a kept bucket", where=f"s3://{bucket}/{prefix}"):
        return bool(s3.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1).get("KeyCount"))


def make_receipt(
    cluster: ClusterOutputs,
    *,
    now: Callable[[], datetime],
    patience: Patience,
    report: Callable[[str], None],
) -> Receipt:
    """Looks for leftovers, measures what is kept and adds up the cost; deletes nothing.

    Args:
        cluster: the cluster that is destroyed.
        now: the wall clock, in UTC.
        patience: how long what is going may take to go.
        report: told what is waited for.

    Raises:
        CloudError: AWS did not answer, or refused for another reason than permission.
    """
    home = cluster.home
    listing = settle(
        lambda: list_tagged(cluster.cluster_id, home=home, since=cluster.created_at), patience=patience, report=report
    )
    unknown = [UnknownItem(kind=item.kind, why=item.why) for item in listing.unknown]
    ec2 = client("ec2", region=home.region, endpoint=home.endpoint)
    s3 = client("s3", region=home.region, endpoint=home.endpoint)
    cost = _cost(ec2, cluster, now())
    kept: tuple[KeptItem, ...] = ()
    try:
        found = find_kept(s3, home=home, stack=cluster.stack, cluster_id=cluster.cluster_id)
        kept = tuple(_kept_item(name, size) for name, size in found)
    except AwsError as error:
        if not error.denied:
            raise
        unknown.append(UnknownItem(kind="kept bucket", why=error.why or str(error)))
    return Receipt(
        cluster_id=cluster.cluster_id,
        stack=cluster.stack,
        owner=cluster.owner,
        home=home,
        created_at=cluster.created_at,
        destroyed_at=now(),
        left=tuple(LeftItem(kind=item.kind, id=item.id, detail=item.detail) for item in listing.found),
        unknown=tuple(unknown),
        kept=kept,
        instance_hours=cost.hours,
        usd=cost.usd,
        usd_note=cost.note,
    )


def _cost(ec2: Any, cluster: ClusterOutputs, now: datetime) -> Cost:  # noqa: ANN401 - a boto client
    try:
        instances = tagged_instances(ec2, TAG_CLUSTER, cluster.cluster_id)
    except AwsError as error:
        if not error.denied:
            raise
        return Cost(hours={}, usd=None, note=f"instances cannot be listed: {error.why}")
    cost = cost_of(instances, now=now, usd_per_hour=region_usd_per_hour(cluster.home.region))
    if cluster.home.endpoint.kind is EndpointKind.REHEARSAL:
        return replace(cost, note=f"a rehearsal is free; on AWS: {cost.note}")
    return cost


def _kept_item(name: str, size: BucketSize) -> KeptItem:
    return KeptItem(
        bucket=name,
        objects=size.objects,
        size_bytes=size.size_bytes,
        complete=size.complete,
        usd_per_month=round(size.usd_per_month, 4),
    )


def require_nothing_left(receipt: Receipt) -> None:
    """Raises LeftoversError, naming what is left, unless nothing is."""
    if not receipt.left:
        return
    shown = [_one_line(item) for item in receipt.left[:SHOWN_LEFTOVERS]]
    if len(receipt.left) > SHOWN_LEFTOVERS:
        shown.append(f"and {len(receipt.left) - SHOWN_LEFTOVERS} more")
    raise LeftoversError(
        f"the destroy left {len(receipt.left)} behind that bear the cluster's tag {TAG_CLUSTER}",
        where=receipt.cluster_id,
        why=", ".join(shown),
        next_step="delete what is named here, then `pulumi destroy` again",
    )


def receipt_table(receipt: Receipt) -> str:
    """The receipt for a terminal: one fact a line, labels in a column."""
    rows = [("left", f"{len(receipt.left)}")]
    rows += [("", _one_line(item)) for item in receipt.left[:SHOWN_LEFTOVERS]]
    rows += [("unknown", f"{item.kind}: {item.why}") for item in receipt.unknown]
    rows += [("kept", _kept_line(item)) for item in receipt.kept] or [("kept", "nothing")]
    rows.append(("lived", _duration(receipt.lived_hours)))
    rows += [("instances", f"{name}: {_duration(hours)}") for name, hours in sorted(receipt.instance_hours.items())]
    rows.append(("cost", f"${receipt.usd:.2f} ({receipt.usd_note})" if receipt.usd is not None else "unpriced"))
    if receipt.usd is None:
        rows.append(("", receipt.usd_note))
    width = max(len(label) for label, _ in rows)
    lines = [f"  {label:<{width}}  {text}" for label, text in rows]
    return "\n".join([f"receipt of {receipt.cluster_id}", *lines])


def _one_line(item: LeftItem) -> str:
    return f"{item.kind} {item.id}{f' ({item.detail})' if item.detail else ''}"


def _kept_line(item: KeptItem) -> str:
    bound = "" if item.complete else "at least "
    return (
        f"s3://{item.bucket}: {bound}{item.objects} objects, {bound}{_size(item.size_bytes)}, "
        f"{bound}${item.usd_per_month:.2f} a month"
    )


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004 - decimal units, as S3 is billed
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _duration(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"


def _names(listing: Listing) -> str:
    first = listing.found[0]
    more = f" and {len(listing.found) - 1} more" if len(listing.found) > 1 else ""
    return f"{first.kind} {first.id}{more}"


def save_receipt(receipt: Receipt, *, folder: Path) -> tuple[str, ...]:
    """Saves the receipt in `folder` and in every kept bucket; where it lies now.

    Raises:
        OSError: the folder cannot be written.
        CloudError: S3 did not answer, or refused for another reason than permission.
    """
    text = receipt.model_dump_json(by_alias=True, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    local = folder / f"{receipt.cluster_id}.json"
    local.write_text(text, encoding="utf-8")
    places = [str(local)]
    s3 = client("s3", region=receipt.home.region, endpoint=receipt.home.endpoint)
    for item in receipt.kept:
        key = f"{cluster_prefix(receipt.cluster_id)}receipt.json"
        try:
            with aws_errors("cannot save the receipt", where=f"s3://{item.bucket}/{key}"):
                s3.put_object(Bucket=item.bucket, Key=key, Body=text.encode(), ContentType="application/json")
        except AwsError as error:
            if not error.denied:
                raise
            continue
        places.append(f"s3://{item.bucket}/{key}")
    return tuple(places)
