"""IAM refusals that moto does not make."""

import json

from moto.iam.models import iam_backends

from rehearsal.aws.wire import AwsRefusal, Call


def before_remove_role(call: Call, account_id: str) -> None:
    """A role that is not in the instance profile cannot be taken out of it (moto fails on it).

    Raises:
        AwsRefusal: NoSuchEntity.
    """
    name, role = call.params.get("InstanceProfileName", ""), call.params.get("RoleName", "")
    profile = iam_backends[account_id]["aws"].instance_profiles.get(name)
    if profile is not None and all(each.name != role for each in profile.roles):
        raise AwsRefusal("NoSuchEntity", f"The role with name {role} cannot be found.", status=404)


def before_trust(call: Call, account_id: str) -> None:  # noqa: ARG001 - one signature for all
    """A trust policy names who is trusted (moto takes any).

    Raises:
        AwsRefusal: MalformedPolicyDocument.
    """
    try:
        document = json.loads(call.params.get("AssumeRolePolicyDocument") or call.params.get("PolicyDocument", ""))
    except ValueError:
        return
    statements = document.get("Statement", []) if isinstance(document, dict) else []
    for statement in statements if isinstance(statements, list) else [statements]:
        if "Principal" not in statement:
            raise AwsRefusal("MalformedPolicyDocument", "Missing required field Principal")
