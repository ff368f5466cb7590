import dataclasses
import inspect
from typing import Any

import pytest
from infra_recording import ACCOUNT, CPU_TYPE, DIGEST, GPU_TYPE, facts, spec

from account.ami import Ami
from infra import rules
from infra.facts import AccountFacts
from infra.rules import ACCOUNT_RULES, SPEC_RULES, AccountRule, Level, Rule, check_account, check_spec
from infra.spec import ClusterSpec, LoadedSpec, load_spec

ARM = dataclasses.replace(CPU_TYPE, name="m7g.large", architectures=("arm64",))
RADEON = dataclasses.replace(GPU_TYPE, name="g4ad.xlarge", gpu_manufacturer="AMD")
OLD = dataclasses.replace(GPU_TYPE, name="p3.2xlarge")
NO_TYPE = dataclasses.replace(facts(CPU_TYPE), types={"m7i.large": CPU_TYPE, "m99.large": None})

SPEC_EXAMPLES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "KnownRegion": [({"region": "eu-west-9"}, "eu-west-1")],
    "AccessNotOpen": [
        ({"access_cidr": "0.0.0.0/0"}, "opens SSH to the world"),
        ({"access_cidr": "::/0"}, "opens SSH to the world"),
        ({"access_cidr": "128.0.0.0/1"}, "opens SSH to the world"),
        ({"access_cidr": "8000::/1"}, "opens SSH to the world"),
    ],
    "AccessIsIPv4": [({"access_cidr": "2001:db8::1/128"}, "IPv4 addresses only")],
    "VpcBlockUsable": [
        ({"vpc_cidr": "10.0.0.0/8"}, "from /16 to /28"),
        ({"vpc_cidr": "8.8.0.0/16"}, "not private"),
        ({"vpc_cidr": "172.17.0.0/16"}, "Docker's own bridge"),
        ({"vpc_cidr": "fd00::/64"}, "is IPv4"),
    ],
    "RoomForNodes": [({"vpc_cidr": "10.0.0.0/28", "workers": 6}, "it has 11 addresses and 14 are needed")],
    "ShortLife": [({"ttl_hours": 73}, "73 hours")],
    "TagsAllowed": [
        ({"tags": {"aws:x": "1"}}, "set tags of this name themselves"),
        ({"tags": {"rayrig:cluster": "mine"}}, "set tags of this name themselves"),
        ({"tags": {"Name": "mine"}}, "set tags of this name themselves"),
        ({"tags": {"k": "v" * 257}}, "at most 256"),
        ({"tags": {"k": "a<b"}}, "are allowed"),
        ({"tags": {"cost centre": "rl"}}, "in a key"),
        ({"tags": {"cost/centre": "rl"}}, "in a key"),
        ({"tags": {"_index": "rl"}}, "set tags of this name themselves"),
        ({"tags": {f"k{i}": "" for i in range(41)}}, "more than 40"),
    ],
}
ACCOUNT_EXAMPLES: dict[str, list[tuple[dict[str, Any], AccountFacts, str]]] = {
    "TypesOffered": [
        ({"worker_type": "m99.large"}, NO_TYPE, "no instance type 'm99.large'"),
        ({}, facts(zones=()), "no availability zone of eu-west-1 offers all of m7i.large, g4dn.xlarge"),
    ],
    "ProcessorFits": [({"head_type": "m7g.large"}, facts(ARM, GPU_TYPE), "m7g.large is arm64")],
    "GpuSupported": [
        ({"worker_type": "g4ad.xlarge"}, facts(CPU_TYPE, RADEON), "AMD"),
        ({"worker_type": "p3.2xlarge"}, facts(CPU_TYPE, OLD), "does not support GPUs this old"),
    ],
    "RootDiskHoldsImage": [
        (
            {"root_gib": 50},
            dataclasses.replace(facts(), amis={"g4dn.xlarge": Ami(id="ami-1", root_bytes=75 * 1024**3)}),
            "less than the machine image's 75 GiB",
        )
    ],
}


def loaded(**changes: Any) -> LoadedSpec:
    return LoadedSpec(spec=spec(**changes))


@pytest.mark.parametrize("name", list(SPEC_EXAMPLES))
def test_each_rule_of_the_spec_finds_its_examples_through_the_whole_check(name: str) -> None:
    for changes, says in SPEC_EXAMPLES[name]:
        (finding,) = check_spec(loaded(**changes))
        assert says in str(finding.problem)
        assert finding.problem.where
        assert finding.problem.next_step
        assert finding.level is (Level.WARNING if name == "ShortLife" else Level.ERROR)


@pytest.mark.parametrize("name", list(ACCOUNT_EXAMPLES))
def test_each_rule_of_the_account_finds_its_examples_through_the_whole_check(name: str) -> None:
    for changes, answers, says in ACCOUNT_EXAMPLES[name]:
        (finding,) = check_account(spec(**changes), answers)
        assert says in str(finding.problem)
        assert finding.problem.next_step
        assert finding.level is Level.ERROR


def test_every_rule_is_wired_in_and_has_examples() -> None:
    classes = {c for _, c in inspect.getmembers(rules, inspect.isclass) if issubclass(c, Rule | AccountRule)}
    written = {c.__name__ for c in classes if not inspect.isabstract(c)}
    wired = [type(rule).__name__ for rule in (*SPEC_RULES, *ACCOUNT_RULES)]
    assert sorted(wired) == sorted(written)
    assert written == set(SPEC_EXAMPLES) | set(ACCOUNT_EXAMPLES)
    assert all(c.__doc__ for c in classes)


def test_a_good_spec_passes_every_rule() -> None:
    assert check_spec(loaded()) == ()
    assert check_account(spec(), facts()) == ()
    assert check_spec(loaded(workers=0, vpc_cidr="10.0.0.0/28")) == ()
    assert check_spec(loaded(tags={"team": "rl", "cost-centre": "a/b c"})) == ()


def test_unknown_zones_are_not_no_zones() -> None:
    assert check_account(spec(), facts(zones=None)) == ()


def test_rules_read_only_what_they_say_so_that_wrong_fields_never_reach_them() -> None:
    class Tracing:
        def __init__(self, real: ClusterSpec, seen: set[str]) -> None:
            self._real, self._seen = real, seen

        def __getattr__(self, name: str) -> Any:
            if name == "subnet_cidr":
                self._seen.add("vpc_cidr")
            elif name in ClusterSpec.model_fields:
                self._seen.add(name)
            return getattr(self._real, name)

    for rule in SPEC_RULES:
        seen: set[str] = set()
        for changes, _ in SPEC_EXAMPLES[type(rule).__name__]:
            list(rule.check(Tracing(spec(**changes), seen)))  # type: ignore[arg-type]
        assert seen == rule.reads, type(rule).__name__


def test_shape_and_rules_are_reported_together() -> None:
    config = {
        "aws:region": "eu-west-1",
        "rayrig:accessCidr": "0.0.0.0/0",
        "rayrig:image": f"ray@{DIGEST}",
        "rayrig:workers": "-1",
        "rayrig:ttlHours": "100",
    }
    texts = [str(finding.problem) for finding in check_spec(load_spec(config))]
    assert [text.split(": ")[0] for text in texts] == ["rayrig:workers", "rayrig:accessCidr", "rayrig:ttlHours"]


def test_nothing_of_the_account_is_in_a_message() -> None:
    problems = [
        finding.problem
        for examples in ACCOUNT_EXAMPLES.values()
        for c, f, _ in examples
        for finding in check_account(spec(**c), f)
    ]
    assert not any(ACCOUNT in str(problem) for problem in problems)
