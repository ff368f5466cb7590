"""What EC2 says of single instances."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from account.clients import AwsError, aws_errors
from account.patience import Patience

ENDED_STATES = frozenset({"shutting-down", "terminated"})
"""States from which an instance never comes back."""

_TRANSITION_TIME = re.compile(r"\((\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})(?: GMT| UTC)?\)")


@dataclass(frozen=True, kw_only=True)
class InstanceFacts:
    """An instance as EC2 describes it.

    Attributes:
        state: pending, running, stopping, stopped, shutting-down or terminated.
        reason: EC2's own words for the last change of state; empty when there are none.
        ended_at: when it began to end; None while it lives, or when EC2 doesn't say.
        spot: whether it was bought on the spot market.
    """

    instance_id: str
    instance_type: str
    state: str
    reason: str
    launched_at: datetime | None
    ended_at: datetime | None
    spot: bool
    tags: dict[str, str]

    @property
    def lives(self) -> bool:
        """Whether it runs or may run again."""
        return self.state not in ENDED_STATES


def parse_instance(item: dict[str, Any]) -> InstanceFacts:
    """Reads one entry of a DescribeInstances reply."""
    state = str(item.get("State", {}).get("Name", "unknown"))
    transition = str(item.get("StateTransitionReason") or "")
    found = _TRANSITION_TIME.search(transition)
    ended_at = None
    if state in ENDED_STATES and found:
        ended_at = datetime.strptime(found.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return InstanceFacts(
        instance_id=str(item["InstanceId"]),
        instance_type=str(item.get("InstanceType", "unknown")),
        state=state,
        reason=str(item.get("StateReason", {}).get("Message") or transition),
        launched_at=item.get("LaunchTime"),
        ended_at=ended_at,
        spot=item.get("InstanceLifecycle") == "spot",
        tags={tag["Key"]: tag["Value"] for tag in item.get("Tags", [])},
    )


def describe_instance(ec2: Any, instance_id: str) -> InstanceFacts | None:  # noqa: ANN401 - a boto client
    """What EC2 knows of an instance; None when it says that there is no such instance.

    Raises:
        CloudError: EC2 refused, or did not answer.
    """
    try:
        with aws_errors("cannot ask EC2 about an instance", where=instance_id):
            reply = ec2.describe_instances(InstanceIds=[instance_id])
    except AwsError as error:
        if error.not_found:
            return None
        raise
    items = [item for reservation in reply["Reservations"] for item in reservation["Instances"]]
    return parse_instance(items[0]) if items else None


def tagged_instances(ec2: Any, key: str, value: str) -> tuple[InstanceFacts, ...]:  # noqa: ANN401 - a boto client
    """Every instance that bears a tag, also the ended ones that EC2 still shows (about an hour).

    Raises:
        CloudError: EC2 refused, or did not answer.
    """
    with aws_errors("cannot list the cluster's instances", where=value):
        pages = ec2.get_paginator("describe_instances").paginate(Filters=[{"Name": f"tag:{key}", "Values": [value]}])
        return tuple(
            parse_instance(item)
            for page in pages
            for reservation in page["Reservations"]
            for item in reservation["Instances"]
        )


def is_gone(ec2: Any, instance_id: str, *, patience: Patience) -> bool:  # noqa: ANN401 - a boto client
    """Whether an instance has ended for good, asked again until `patience` ends before it is believed.

    Describe is eventually consistent (a new instance may be invisible for a second), so one absence proves nothing.

    Raises:
        CloudError: EC2 refused, or did not answer.
    """
    for _ in patience.rounds():
        facts = describe_instance(ec2, instance_id)
        if facts is not None and facts.lives:
            return False
    return True
