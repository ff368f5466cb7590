"""Tags: the program's and the provider's default ones on the way to AWS, apart again on the way back."""

from collections.abc import Iterable, Mapping
from typing import Any

from rehearsal.double.session import Session
from rehearsal.double.values import Values


def wanted(session: Session, inputs: Values) -> dict[str, str]:
    """Every tag that the resource should bear."""
    return session.default_tags | dict(inputs.get("tags", {}))


def as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """AWS's form."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def specifications(resource_type: str, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """TagSpecifications of an EC2 call; none where there are no tags, as AWS refuses empty ones."""
    return [{"ResourceType": resource_type, "Tags": as_list(tags)}] if tags else []


def told(session: Session, found: Iterable[Mapping[str, str]], state: Values) -> Values:
    """`tags` and `tagsAll` as the provider tells them; AWS's own tags do not show.

    A default tag shows in `tags` only where the program set it itself.
    """
    every = {tag["Key"]: tag["Value"] for tag in found if not tag["Key"].startswith("aws:")}
    given = state.get("tags", {})
    own = {key: value for key, value in every.items() if key in given or session.default_tags.get(key) != value}
    return {"tags": own, "tagsAll": every}


def update_ec2(session: Session, resource_id: str, old: Values, new: Values) -> None:
    """Makes an EC2 resource's tags those of the new inputs."""
    have, want = old.get("tagsAll", {}), wanted(session, new)
    gone = sorted(have.keys() - want.keys())
    fresh = {key: value for key, value in want.items() if have.get(key) != value}
    if gone:
        session.ec2("delete_tags", Resources=[resource_id], Tags=[{"Key": key} for key in gone])
    if fresh:
        session.ec2("create_tags", Resources=[resource_id], Tags=as_list(fresh))
