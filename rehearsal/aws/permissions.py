"""What an instance role may do: its policies, weighed for every call made with its credentials.

moto lets every caller do everything. Calls with other credentials (the person's) still may; those of an assumed role
get AWS's answer, so that a policy that is too tight, or too wide, shows in rehearsal.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.iam.models import iam_backends
from moto.sts.models import sts_backends

from rehearsal.aws.wire import AwsRefusal, Call

PARTITION = "aws"
ALWAYS = frozenset({"sts:GetCallerIdentity"})
"""Needs no permission (STS API reference)."""
DENIED_CODES = {"ec2": "UnauthorizedOperation", "iam": "AccessDenied", "s3": "AccessDenied", "sts": "AccessDenied"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One permission that a call needs.

    Attributes:
        action: as `s3:PutObject`.
        resource: ARN, `*` where the action has none.
        context: condition keys and their values; a key that the call does not carry is absent.
    """

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict)


def check_permissions(call: Call, account_id: str, asked: Iterable[Asked]) -> None:
    """Lets the call pass unless an instance role makes it that may not.

    Raises:
        AwsRefusal: AccessDenied or UnauthorizedOperation, in AWS's words.
    """
    caller = sts_backends[account_id][PARTITION].get_assumed_role_from_access_key(call.access_key)
    if caller is None:
        return
    variables = {"aws:userid": caller.user_id, "aws:PrincipalAccount": account_id}
    statements = list(_statements(account_id, caller.role_arn))
    for each in asked:
        if each.action not in ALWAYS and not allowed(statements, each, variables):
            raise AwsRefusal(
                DENIED_CODES.get(call.service, "AccessDeniedException"),
                f"User: {caller.arn} is not authorized to perform: {each.action} on resource: {each.resource} because "
                f"no identity-based policy allows the {each.action} action",
                status=403,
            )


def _statements(account_id: str, role_arn: str) -> Iterator[Mapping[str, Any]]:
    iam = iam_backends[account_id][PARTITION]
    role = next((each for each in iam.roles.values() if each.arn == role_arn), None)
    if role is None:
        return
    documents = [*role.policies.values(), *(policy.document for policy in role.managed_policies.values())]
    for document in documents:
        statements = json.loads(document)["Statement"]
        yield from statements if isinstance(statements, list) else [statements]


def allowed(statements: Iterable[Mapping[str, Any]], asked: Asked, variables: Mapping[str, str]) -> bool:
    """IAM's rule for one account: something allows it, and nothing denies it.

    Args:
        statements: of all policies of the caller.
        asked: what is to be done.
        variables: values of policy variables, as aws:userid.

    Raises:
        AwsRefusal: a statement uses what is not weighed here (NotAction, NotResource, an unknown condition).
    """
    effects = {each["Effect"] for each in statements if _applies(each, asked, variables)}
    return "Allow" in effects and "Deny" not in effects


def _applies(statement: Mapping[str, Any], asked: Asked, variables: Mapping[str, str]) -> bool:
    if "NotAction" in statement or "NotResource" in statement:
        raise AwsRefusal("NotSimulated", "the rehearsal does not weigh NotAction and NotResource", status=501)
    actions, resources = _list(statement["Action"]), _list(statement["Resource"])
    return (
        any(_like(each.lower(), asked.action.lower(), {}) for each in actions)
        and any(_like(each, asked.resource, variables) for each in resources)
        and all(
            _holds(operator, key, _list(values), asked.context, variables)
            for operator, tests in statement.get("Condition", {}).items()
            for key, values in tests.items()
        )
    )


def _list(value: Any) -> list[str]:  # noqa: ANN401 - a policy has one or a list
    return [str(each) for each in (value if isinstance(value, list) else [value])]


def _like(pattern: str, value: str, variables: Mapping[str, str]) -> bool:
    parts = re.split(r"(\$\{[^}]+\}|\*|\?)", pattern)
    found = {"*": ".*", "?": "."}
    regex = "".join(
        found.get(part) or re.escape(variables.get(part[2:-1], part) if part.startswith("${") else part)
        for part in parts
        if part
    )
    return re.fullmatch(regex, value, re.DOTALL) is not None


def _holds(
    operator: str, key: str, values: list[str], context: Mapping[str, str], variables: Mapping[str, str]
) -> bool:
    found = context.get(key, variables.get(key))
    if operator == "Null":
        return (found is None) == (values == ["true"])
    base = operator.removesuffix("IfExists")
    if found is None:
        return base != operator or base == "StringNotEquals"
    match base:
        case "StringEquals":
            return found in values
        case "StringNotEquals":
            return found not in values
        case "StringLike":
            return any(_like(each, found, variables) for each in values)
        case "Bool":
            return found in values
    raise AwsRefusal("NotSimulated", f"the rehearsal does not weigh the condition {operator}", status=501)
