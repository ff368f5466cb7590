"""Security groups as AWS keeps them: descriptions of rules between groups, whole rules changed, groups of instances."""

from typing import Any

from moto.ec2.models import ec2_backends

from rehearsal.aws.wire import Answer, Call


def after_authorize(call: Call, account_id: str, answer: Answer) -> None:  # noqa: ARG001 - one signature for all
    """A rule between groups keeps its description (moto holds it where DescribeSecurityGroupRules does not look)."""
    group = ec2_backends[account_id][call.region].get_security_group_from_id(call.params.get("GroupId", ""))
    for rule in (*group.ingress_rules, *group.egress_rules):
        text = rule.source_group.pop("Description", None)
        if text:
            rule.ip_range = {"Description": text}


def after_modify_rules(call: Call, account_id: str, answer: Answer) -> None:  # noqa: ARG001 - one signature for all
    """A changed rule is wholly what was asked for (moto drops the group, and what is no longer there)."""
    group = ec2_backends[account_id][call.region].get_security_group_from_id(call.params.get("GroupId", ""))
    for asked in call.groups("SecurityGroupRule").values():
        rule = group.get_rule(asked.get("SecurityGroupRuleId"))
        if rule is not None:
            _rewrite(rule, {name.partition(".")[2]: value for name, value in asked.items() if "." in name})


def _rewrite(rule: Any, asked: dict[str, str]) -> None:  # noqa: ANN401 - moto's model
    peers = {
        "CidrIp": asked.get("CidrIpv4"),
        "CidrIpv6": asked.get("CidrIpv6"),
        "Description": asked.get("Description"),
    }
    rule.ip_range = {name: value for name, value in peers.items() if value}
    group_id = asked.get("ReferencedGroupId")
    rule.source_group = {"GroupId": group_id, "UserId": rule.ec2_backend.account_id} if group_id else {}
    every = asked.get("IpProtocol") == "-1"
    rule.from_port = None if every else int(asked["FromPort"])
    rule.to_port = None if every else int(asked["ToPort"])


def after_modify_instance(call: Call, account_id: str, answer: Answer) -> None:  # noqa: ARG001 - one signature for all
    """An instance's groups are its primary interface's groups (moto keeps the old ones there as well)."""
    asked = call.members("GroupId")
    if asked:
        ec2 = ec2_backends[account_id][call.region]
        instance = ec2.get_instance(call.params["InstanceId"])
        instance.nics[0]._group_set = [ec2.get_security_group_from_id(each) for each in asked]
