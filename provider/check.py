"""Checks a resource's inputs against its contract model; what is unknown during a preview is taken to be right."""

from dataclasses import dataclass

from pydantic import ValidationError

from contract.inventory import WireModel
from provider.values import Path, Values, has_unknown, unknown_paths, without_nulls, written


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One property that is wrong, and why."""

    property: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Inputs as the engine shall keep them, with defaults filled in once everything is known."""

    inputs: Values
    failures: tuple[Failure, ...] = ()


def check_inputs(model: type[WireModel], news: Values) -> Checked:
    """Validates inputs, one readable failure per property."""
    given: Values = without_nulls(news)
    unknown = list(unknown_paths(given))
    try:
        valid = model.model_validate(given)
    except ValidationError as error:
        failures = tuple(
            Failure(property=written(path), reason=_reason(path, str(item["msg"]), str(item["type"])))
            for item in error.errors(include_url=False)
            if not _may_be_right(path := tuple(item["loc"]), str(item["type"]), unknown)
        )
        return Checked(inputs=given, failures=failures)
    return Checked(inputs=given if unknown else without_nulls(valid.to_wire()))


def check_home(olds: Values, news: Values) -> tuple[Failure, ...]:
    """Refuses to move a resource to another account, region or endpoint: the old one would be orphaned."""
    old, new = olds.get("home"), news.get("home")
    if not old or not new or has_unknown([old, new]) or without_nulls(old) == without_nulls(new):
        return ()
    reason = (
        f"this stack's cluster lives in {_home(old)}, but the configuration and credentials at hand are for "
        f"{_home(new)}; nothing was changed. Next: use those of the cluster, or `pulumi destroy` it with them first"
    )
    return (Failure(property="home", reason=reason),)


def _home(home: Values) -> str:
    endpoint = home.get("endpoint", {})
    where = endpoint.get("url") or "AWS itself"
    return f"account {home.get('accountId')}, region {home.get('region')}, {where}"


def _may_be_right(path: Path, kind: str, unknown: list[Path]) -> bool:
    if kind in {"extra_forbidden", "missing"}:
        return False
    return any(path[: len(other)] == other or other[: len(path)] == path for other in unknown)


def _reason(path: Path, message: str, kind: str) -> str:
    name = written(path) or "the inputs"
    if kind == "missing":
        return f"{name} is required"
    if kind == "extra_forbidden":
        return f"{name} is not a property of this resource"
    return f"{name}: {message[:1].lower()}{message[1:]}"
