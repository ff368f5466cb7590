"""IAM: role, inline policy of a role, instance profile."""

import json
from typing import Any

from contract.errors import CloudError
from rehearsal.double import tagging
from rehearsal.double.kinds.network import one
from rehearsal.double.session import AwsError, Session, tolerated
from rehearsal.double.table import TAGS, UNSIMULATED, Property, Table, matching, within
from rehearsal.double.values import Values

ROLE_NAME_LIMIT = 64
"""Characters of a role's name (IAM quotas)."""
NAME_LIMIT = 128
"""Characters of an inline policy's or instance profile's name (IAM quotas)."""
ROLE_NAME_FORM = matching(r"[\w+=,.@-]{1,64}", f"up to {ROLE_NAME_LIMIT} letters, digits and _+=,.@-")
NAME_FORM = matching(r"[\w+=,.@-]+", "letters, digits and _+=,.@-")


def policy(value: str) -> str | None:
    """What is wrong with a policy document; None when it is a JSON object."""
    try:
        found = json.loads(value)
    except ValueError as error:
        return f"not a JSON document: {error}"
    return None if isinstance(found, dict) else "expected a JSON object"


def document(found: Any) -> str:  # noqa: ANN401 - boto gives a dict or a text
    """A policy document as text."""
    return found if isinstance(found, str) else json.dumps(found)


def delete_quietly(session: Session, operation: str, **params: str) -> None:
    """Deletes something of IAM's; one that is gone already is no error."""
    with tolerated(not_found=True):
        session.iam(operation, **params)


def update_tags(session: Session, kind: str, key: dict[str, str], old: Values, new: Values) -> None:
    """Makes an IAM resource's tags those of the new inputs; `kind` as in boto's tag_KIND."""
    have, want = old.get("tagsAll", {}), tagging.wanted(session, new)
    gone = sorted(have.keys() - want.keys())
    fresh = {name: value for name, value in want.items() if have.get(name) != value}
    if gone:
        session.iam(f"untag_{kind}", TagKeys=gone, **key)
    if fresh:
        session.iam(f"tag_{kind}", Tags=tagging.as_list(fresh), **key)


class RoleHandler:
    """`aws:iam/role:Role`; its id is the name."""

    def create(self, session: Session, inputs: Values) -> str:
        """Makes the role."""
        more = {
            name: inputs[key]
            for key, name in (("description", "Description"), ("permissionsBoundary", "PermissionsBoundary"))
            if inputs.get(key)
        }
        session.iam(
            "create_role",
            RoleName=inputs["name"],
            AssumeRolePolicyDocument=inputs["assumeRolePolicy"],
            Path=inputs["path"],
            MaxSessionDuration=inputs["maxSessionDuration"],
            Tags=tagging.as_list(tagging.wanted(session, inputs)),
            **more,
        )
        return str(inputs["name"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Nothing more to do."""

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The role."""
        role = session.iam("get_role", RoleName=resource_id)["Role"]
        return {
            "arn": role["Arn"],
            "name": role["RoleName"],
            "namePrefix": "",
            "path": role["Path"],
            "assumeRolePolicy": document(role["AssumeRolePolicyDocument"]),
            "description": role.get("Description", ""),
            "maxSessionDuration": role.get("MaxSessionDuration", 3600),
            "permissionsBoundary": role.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", ""),
            "uniqueId": role["RoleId"],
            "createDate": role["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
            **tagging.told(session, role.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Trust policy, description, session length, boundary, tags."""
        if "assumeRolePolicy" in changed:
            session.iam("update_assume_role_policy", RoleName=resource_id, PolicyDocument=new["assumeRolePolicy"])
        if changed & {"description", "maxSessionDuration"}:
            session.iam(
                "update_role",
                RoleName=resource_id,
                Description=new.get("description", ""),
                MaxSessionDuration=new["maxSessionDuration"],
            )
        if "permissionsBoundary" in changed and new.get("permissionsBoundary"):
            session.iam(
                "put_role_permissions_boundary",
                RoleName=resource_id,
                PermissionsBoundary=new["permissionsBoundary"],
            )
        elif "permissionsBoundary" in changed:
            session.iam("delete_role_permissions_boundary", RoleName=resource_id)
        if changed & {"tags", "tagsAll"}:
            update_tags(session, "role", {"RoleName": resource_id}, old, new)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:
        """Takes the role out of instance profiles, as the provider does, and deletes it."""
        try:
            profiles = session.iam("list_instance_profiles_for_role", RoleName=resource_id)["InstanceProfiles"]
        except AwsError as failure:
            if failure.not_found:
                return
            raise
        for profile in profiles:
            delete_quietly(
                session,
                "remove_role_from_instance_profile",
                InstanceProfileName=profile["InstanceProfileName"],
                RoleName=resource_id,
            )
        if state.get("forceDetachPolicies"):
            for name in session.iam("list_role_policies", RoleName=resource_id)["PolicyNames"]:
                delete_quietly(session, "delete_role_policy", RoleName=resource_id, PolicyName=name)
        try:
            delete_quietly(session, "delete_role", RoleName=resource_id)
        except AwsError as failure:
            if failure.code != "DeleteConflict":
                raise
            names = session.iam("list_role_policies", RoleName=resource_id)["PolicyNames"]
            attached = session.iam("list_attached_role_policies", RoleName=resource_id)["AttachedPolicies"]
            held = [f"inline policy {name}" for name in names] + [each["PolicyArn"] for each in attached]
            raise CloudError(
                f"role {resource_id} still has policies",
                why=f"{', '.join(held)}. {failure.why}",
                next_step="delete them, then run the same command again",
            ) from failure


ROLE = Table(
    pulumi_type="aws:iam/role:Role",
    what="IAM role",
    autoname="name",
    autoname_limit=ROLE_NAME_LIMIT,
    properties={
        "assumeRolePolicy": Property(required=True, compare="json", wrong=policy),
        "description": Property(wrong=matching(r"(?s).{0,1000}", "at most 1000 characters")),
        "forceDetachPolicies": Property(kind="flag", default=False, local=True),
        "inlinePolicies": UNSIMULATED,
        "managedPolicyArns": UNSIMULATED,
        "maxSessionDuration": Property(kind="number", default=3600, wrong=within(3600, 43200)),
        "name": Property(computed=True, wrong=ROLE_NAME_FORM),
        "namePrefix": UNSIMULATED,
        "path": Property(default="/", wrong=matching(r"/|/.+/", "a path that begins and ends with /")),
        "permissionsBoundary": Property(),
        "tags": TAGS,
    },
    outputs=("arn", "createDate", "tagsAll", "uniqueId"),
    handler=RoleHandler(),
)  # fmt: skip


class RolePolicyHandler:
    """`aws:iam/rolePolicy:RolePolicy`; its id is ROLE:NAME."""

    def create(self, session: Session, inputs: Values) -> str:
        """Writes the policy."""
        self._put(session, inputs)
        return f"{inputs['role']}:{inputs['name']}"

    def _put(self, session: Session, inputs: Values) -> None:
        session.iam(
            "put_role_policy",
            RoleName=inputs["role"],
            PolicyName=inputs["name"],
            PolicyDocument=inputs["policy"],
        )

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Nothing more to do."""

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:  # noqa: ARG002 - the protocol's
        """The policy."""
        role, _, name = resource_id.partition(":")
        found = session.iam("get_role_policy", RoleName=role, PolicyName=name)
        return {
            "role": role,
            "name": name,
            "namePrefix": "",
            "policy": document(found["PolicyDocument"]),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:  # noqa: ARG002
        """Writes it anew."""
        self._put(session, new)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:  # noqa: ARG002 - the protocol's
        """Deletes it."""
        role, _, name = resource_id.partition(":")
        delete_quietly(session, "delete_role_policy", RoleName=role, PolicyName=name)


ROLE_POLICY = Table(
    pulumi_type="aws:iam/rolePolicy:RolePolicy",
    what="IAM role policy",
    autoname="name",
    autoname_limit=NAME_LIMIT,
    properties={
        "name": Property(computed=True, wrong=NAME_FORM),
        "namePrefix": UNSIMULATED,
        "policy": Property(required=True, compare="json", wrong=policy),
        "role": Property(required=True, wrong=matching(r"[\w+=,.@-]+", "a role's name (not its ARN)")),
    },
    outputs=(),
    handler=RolePolicyHandler(),
)


class ProfileHandler:
    """`aws:iam/instanceProfile:InstanceProfile`; its id is the name."""

    def create(self, session: Session, inputs: Values) -> str:
        """Makes the profile."""
        session.iam(
            "create_instance_profile",
            InstanceProfileName=inputs["name"],
            Path=inputs["path"],
            Tags=tagging.as_list(tagging.wanted(session, inputs)),
        )
        return str(inputs["name"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Puts the role in; a profile that holds one already says LimitExceeded."""
        if inputs.get("role"):
            with tolerated("LimitExceeded"):
                session.iam("add_role_to_instance_profile", InstanceProfileName=resource_id, RoleName=inputs["role"])

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The profile and its role."""
        profile = session.iam("get_instance_profile", InstanceProfileName=resource_id)["InstanceProfile"]
        role = one(profile["Roles"])
        return {
            "arn": profile["Arn"],
            "name": profile["InstanceProfileName"],
            "namePrefix": "",
            "path": profile["Path"],
            "role": role["RoleName"] if role else "",
            "uniqueId": profile["InstanceProfileId"],
            "createDate": profile["CreateDate"].strftime("%Y-%m-%dT%H:%M:%SZ"),
            **tagging.told(session, profile.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Another role; tags."""
        if "role" in changed:
            self._empty(session, resource_id, old.get("role", ""))
            self.settle(session, resource_id, new)
        if changed & {"tags", "tagsAll"}:
            update_tags(session, "instance_profile", {"InstanceProfileName": resource_id}, old, new)

    def _empty(self, session: Session, name: str, role: str) -> None:
        if role:
            delete_quietly(session, "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=role)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:
        """Takes the role out and deletes the profile."""
        self._empty(session, resource_id, state.get("role", ""))
        delete_quietly(session, "delete_instance_profile", InstanceProfileName=resource_id)


PROFILE = Table(
    pulumi_type="aws:iam/instanceProfile:InstanceProfile",
    what="IAM instance profile",
    autoname="name",
    autoname_limit=NAME_LIMIT,
    properties={
        "name": Property(computed=True, wrong=NAME_FORM),
        "namePrefix": UNSIMULATED,
        "path": Property(default="/", wrong=matching(r"/|/.+/", "a path that begins and ends with /")),
        "role": Property(),
        "tags": TAGS,
    },
    outputs=("arn", "createDate", "tagsAll", "uniqueId"),
    handler=ProfileHandler(),
)
