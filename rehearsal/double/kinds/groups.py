"""Security groups and their standalone rules."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rehearsal.double import holders, tagging
from rehearsal.double.kinds.network import one
from rehearsal.double.session import Session, tolerated
from rehearsal.double.table import REGION, TAGS, UNSIMULATED, Property, Table, exactly_one, matching, within
from rehearsal.double.values import UNKNOWN, Values

ALL_TRAFFIC = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
"""The rule that AWS gives every new group and the provider takes away (provider documentation, aws_security_group)."""


DESCRIPTION = r"[\w .:/()#,@\[\]+=&;{}!$*-]{1,255}"
DESCRIPTION_TEXT = "up to 255 letters, digits, spaces and ._-:/()#,@[]+=&;{}!$*"
PROTOCOL = r"-1|\d{1,3}|tcp|udp|icmp|icmpv6"


class GroupHandler:
    """`aws:ec2/securityGroup:SecurityGroup`."""

    def create(self, session: Session, inputs: Values) -> str:
        """Makes the group."""
        network = {"VpcId": inputs["vpcId"]} if "vpcId" in inputs else {}
        answer = session.ec2(
            "create_security_group",
            GroupName=inputs["name"],
            Description=inputs["description"],
            TagSpecifications=tagging.specifications("security-group", tagging.wanted(session, inputs)),
            **network,
        )
        return str(answer["GroupId"])

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:  # noqa: ARG002 - the protocol's
        """Takes AWS's default way out away: every way out is written in a rule of its own."""
        with tolerated("InvalidPermission.NotFound"):
            session.ec2("revoke_security_group_egress", GroupId=resource_id, IpPermissions=[ALL_TRAFFIC])

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The group; its rules are resources of their own."""
        group = one(session.ec2("describe_security_groups", GroupIds=[resource_id])["SecurityGroups"])
        if group is None:
            return None
        return {
            "arn": session.arn("ec2", f"security-group/{resource_id}"),
            "name": group["GroupName"],
            "namePrefix": "",
            "description": group["Description"],
            "vpcId": group.get("VpcId", ""),
            "ownerId": session.account_id,
            "region": session.region,
            **tagging.told(session, group.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Tags."""
        if changed & {"tags", "tagsAll"}:
            tagging.update_ec2(session, resource_id, old, new)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:
        """Deletes it once no interface bears it and no rule names it."""
        if state.get("revokeRulesOnDelete"):
            self._revoke_all(session, resource_id)
        session.delete_held(
            f"security group {resource_id} ({state.get('name', '')})",
            lambda: session.ec2("delete_security_group", GroupId=resource_id),
            lambda: holders.of_group(session, resource_id),
        )

    def _revoke_all(self, session: Session, group_id: str) -> None:
        rules = session.ec2("describe_security_group_rules", Filters=[{"Name": "group-id", "Values": [group_id]}])
        for egress, operation in ((False, "revoke_security_group_ingress"), (True, "revoke_security_group_egress")):
            ids = [each["SecurityGroupRuleId"] for each in rules["SecurityGroupRules"] if each["IsEgress"] is egress]
            if ids:
                session.ec2(operation, GroupId=group_id, SecurityGroupRuleIds=ids)


GROUP = Table(
    pulumi_type="aws:ec2/securityGroup:SecurityGroup",
    what="security group",
    autoname="name",
    properties={
        "description": Property(default="Managed by Pulumi", wrong=matching(DESCRIPTION, DESCRIPTION_TEXT)),
        "egress": UNSIMULATED,
        "ingress": UNSIMULATED,
        "name": Property(computed=True, wrong=matching(r"(?!sg-).{1,255}", "a name that does not begin with sg-")),
        "namePrefix": UNSIMULATED,
        "region": REGION,
        "revokeRulesOnDelete": Property(kind="flag", default=False, local=True),
        "tags": TAGS,
        "vpcId": Property(computed=True),
    },
    outputs=("arn", "ownerId", "tagsAll"),
    handler=GroupHandler(),
)  # fmt: skip

PEERS = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")


@dataclass(frozen=True, kw_only=True)
class RuleHandler:
    """`aws:vpc/securityGroupIngressRule` and `…EgressRule`."""

    direction: Literal["ingress", "egress"]

    def create(self, session: Session, inputs: Values) -> str:
        """Adds the rule to its group."""
        answer = session.ec2(
            f"authorize_security_group_{self.direction}",
            GroupId=inputs["securityGroupId"],
            IpPermissions=[self._permission(inputs)],
            TagSpecifications=tagging.specifications("security-group-rule", tagging.wanted(session, inputs)),
        )
        return str(answer["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    def _permission(self, inputs: Values) -> dict[str, Any]:
        said = {"Description": inputs["description"]} if inputs.get("description") else {}
        permission: dict[str, Any] = {"IpProtocol": inputs["ipProtocol"]}
        if "fromPort" in inputs:
            permission |= {"FromPort": inputs["fromPort"], "ToPort": inputs["toPort"]}
        if "cidrIpv4" in inputs:
            permission["IpRanges"] = [{"CidrIp": inputs["cidrIpv4"], **said}]
        elif "cidrIpv6" in inputs:
            permission["Ipv6Ranges"] = [{"CidrIpv6": inputs["cidrIpv6"], **said}]
        else:
            permission["UserIdGroupPairs"] = [{"GroupId": inputs["referencedSecurityGroupId"], **said}]
        return permission

    def settle(self, session: Session, resource_id: str, inputs: Values) -> None:
        """Nothing more to do."""

    def read(self, session: Session, resource_id: str, state: Values) -> Values | None:
        """The rule."""
        answer = session.ec2("describe_security_group_rules", SecurityGroupRuleIds=[resource_id])
        rule = one(answer["SecurityGroupRules"])
        if rule is None:
            return None
        all_ports = rule["IpProtocol"] == "-1"
        return {
            "arn": session.arn("ec2", f"security-group-rule/{resource_id}"),
            "securityGroupRuleId": resource_id,
            "securityGroupId": rule["GroupId"],
            "ipProtocol": rule["IpProtocol"],
            "fromPort": None if all_ports and "fromPort" not in state else rule.get("FromPort"),
            "toPort": None if all_ports and "toPort" not in state else rule.get("ToPort"),
            "cidrIpv4": rule.get("CidrIpv4") or None,
            "cidrIpv6": rule.get("CidrIpv6") or None,
            "referencedSecurityGroupId": rule.get("ReferencedGroupInfo", {}).get("GroupId"),
            "description": rule.get("Description") or None,
            "region": session.region,
            **tagging.told(session, rule.get("Tags", []), state),
        }

    def update(self, session: Session, resource_id: str, old: Values, new: Values, changed: frozenset[str]) -> None:
        """Changes the rule under its id; tags."""
        if changed - {"tags", "tagsAll"}:
            wire = {
                "IpProtocol": new["ipProtocol"],
                "FromPort": new.get("fromPort", -1),
                "ToPort": new.get("toPort", -1),
                "CidrIpv4": new.get("cidrIpv4"),
                "CidrIpv6": new.get("cidrIpv6"),
                "ReferencedGroupId": new.get("referencedSecurityGroupId"),
                "Description": new.get("description", ""),
            }
            rule = {name: value for name, value in wire.items() if value is not None}
            session.ec2(
                "modify_security_group_rules",
                GroupId=new["securityGroupId"],
                SecurityGroupRules=[{"SecurityGroupRuleId": resource_id, "SecurityGroupRule": rule}],
            )
        if changed & {"tags", "tagsAll"}:
            tagging.update_ec2(session, resource_id, old, new)

    def delete(self, session: Session, resource_id: str, state: Values) -> None:
        """Takes the rule away; a group that is gone took it along."""
        with tolerated(not_found=True):
            session.ec2(
                f"revoke_security_group_{self.direction}",
                GroupId=state["securityGroupId"],
                SecurityGroupRuleIds=[resource_id],
            )


def _cidr(version: Literal[4, 6]) -> Any:  # noqa: ANN401 - a look at a value
    def wrong(value: str) -> str | None:
        try:
            network = ipaddress.ip_network(value)
        except ValueError as error:
            return f"{value!r} is not an IPv{version} CIDR block: {error}"
        return None if network.version == version else f"{value!r} is not an IPv{version} CIDR block"

    return wrong


def _ports(inputs: Values) -> Mapping[str, str]:
    """TCP and UDP need both ports in order; all traffic takes none."""
    protocol, low, high = inputs.get("ipProtocol"), inputs.get("fromPort"), inputs.get("toPort")
    if UNKNOWN in (protocol, low, high):
        return {}
    if protocol == "-1":
        return {"fromPort": "all traffic (ipProtocol -1) takes no ports"} if low not in (None, -1) else {}
    if low is None or high is None:
        return {"fromPort" if low is None else "toPort": f"protocol {protocol} needs fromPort and toPort"}
    return {"toPort": f"toPort {high} lies below fromPort {low}"} if high < low else {}


def _rule_table(name: str, direction: Literal["ingress", "egress"]) -> Table:
    return Table(
        pulumi_type=f"aws:vpc/securityGroup{name}Rule:SecurityGroup{name}Rule",
        what=f"security group {direction} rule",
        properties={
            "cidrIpv4": Property(wrong=_cidr(4)),
            "cidrIpv6": Property(wrong=_cidr(6)),
            "description": Property(wrong=matching(r".{0,255}", "at most 255 characters")),
            "fromPort": Property(kind="number", wrong=within(-1, 65535)),
            "ipProtocol": Property(required=True, wrong=matching(PROTOCOL, "tcp, udp, icmp, icmpv6, -1 or a number")),
            "prefixListId": UNSIMULATED,
            "referencedSecurityGroupId": Property(),
            "region": REGION,
            "securityGroupId": Property(required=True),
            "tags": TAGS,
            "toPort": Property(kind="number", wrong=within(-1, 65535)),
        },
        outputs=("arn", "securityGroupRuleId", "tagsAll"),
        rules=(exactly_one(*PEERS), _ports),
        handler=RuleHandler(direction=direction),
    )  # fmt: skip


INGRESS_RULE = _rule_table("Ingress", "ingress")
EGRESS_RULE = _rule_table("Egress", "egress")
