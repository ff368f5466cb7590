from dataclasses import replace

import pytest

from rehearsal.nodes.firewall import Service, Surroundings, host_resolvers, members_of, node_rules
from rehearsal.nodes.instances import Instance, Rule, SecurityGroup

AROUND = Surroundings(
    public_cidr="198.18.77.0/24",
    user_address="198.18.77.1",
    metadata=Service(address="10.77.0.1", port=8001),
    boot_metadata=Service(address="10.77.0.1", port=8002),
    aws=(Service(address="198.18.77.1", port=5000), Service(address="198.18.77.1", port=5001)),
)


def instance(number: int, *, groups: tuple[str, ...] = ("sg-1",), public: bool = True) -> Instance:
    return Instance(
        instance_id=f"i-{number}",
        state="running",
        instance_type="m7i.large",
        image_id="ami-1",
        private_ip=f"10.77.0.{number}",
        public_ip=f"198.18.77.{number}" if public else None,
        key_name=None,
        subnet_id="subnet-1",
        vpc_id="vpc-1",
        availability_zone="eu-west-1a",
        group_ids=groups,
        group_names=groups,
        profile_arn=None,
        token_required=True,
    )


def group(*, ingress: tuple[Rule, ...] = (), egress: tuple[Rule, ...] = ()) -> dict[str, SecurityGroup]:
    return {"sg-1": SecurityGroup(group_id="sg-1", ingress=ingress, egress=egress)}


def chain(text: str, name: str) -> list[str]:
    return [line.removeprefix(f"-A {name} ") for line in text.splitlines() if line.startswith(f"-A {name} ")]


ESTABLISHED = "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"


def test_without_rules_only_answers_pass_and_metadata_is_reached():
    text = node_rules(instance(4), group(), {}, AROUND)
    assert chain(text, "RIG-IN") == [ESTABLISHED, "-j DROP"]
    assert chain(text, "RIG-OUT") == [
        ESTABLISHED,
        "-d 10.77.0.1/32 -p tcp --dport 8001 -j ACCEPT",
        "-d 10.77.0.1/32 -p tcp --dport 8002 -j ACCEPT",
        "-j DROP",
    ]


def test_a_group_that_is_not_known_lets_nothing_through():
    assert chain(node_rules(instance(4), {}, {}, AROUND), "RIG-IN") == [ESTABLISHED, "-j DROP"]


def test_a_reference_to_the_own_group_means_its_members():
    rule = Rule(protocol="tcp", from_port=0, to_port=65535, group_ids=("sg-1",))
    members = members_of([instance(5), instance(4), instance(6, groups=("sg-2",))])
    assert members["sg-1"] == ("10.77.0.4", "10.77.0.5")
    text = node_rules(instance(4), group(ingress=(rule,)), members, AROUND)
    assert chain(text, "RIG-IN")[1:-1] == ["-s 10.77.0.4/32 -p tcp -j ACCEPT", "-s 10.77.0.5/32 -p tcp -j ACCEPT"]


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (Rule(protocol="-1", cidrs=("1.2.3.0/24",)), ""),
        (Rule(protocol="tcp", from_port=22, to_port=22, cidrs=("1.2.3.0/24",)), " -p tcp --dport 22"),
        (Rule(protocol="6", from_port=10, to_port=20, cidrs=("1.2.3.0/24",)), " -p tcp --dport 10:20"),
        (Rule(protocol="udp", from_port=0, to_port=65535, cidrs=("1.2.3.0/24",)), " -p udp"),
        (Rule(protocol="icmp", from_port=8, to_port=-1, cidrs=("1.2.3.0/24",)), " -p icmp --icmp-type 8"),
        (Rule(protocol="icmp", cidrs=("1.2.3.0/24",)), " -p icmp"),
        (Rule(protocol="50", cidrs=("1.2.3.0/24",)), " -p 50"),
    ],
)
def test_protocols_and_ports(rule: Rule, match: str):
    text = node_rules(instance(4), group(ingress=(rule,)), {}, AROUND)
    assert chain(text, "RIG-IN")[1:-1] == [f"-s 1.2.3.0/24{match} -j ACCEPT"]


@pytest.mark.parametrize(
    ("rule", "reached"),
    [
        (Rule(protocol="tcp", from_port=443, to_port=443, cidrs=("0.0.0.0/0",)), True),
        (Rule(protocol="-1", cidrs=("0.0.0.0/0",)), True),
        (Rule(protocol="tcp", from_port=443, to_port=443, prefix_lists=("pl-s3",)), True),
        (Rule(protocol="tcp", from_port=80, to_port=80, cidrs=("0.0.0.0/0",)), False),
        (Rule(protocol="udp", from_port=443, to_port=443, cidrs=("0.0.0.0/0",)), False),
        (Rule(protocol="tcp", from_port=443, to_port=443, cidrs=("10.77.0.0/16",)), False),
    ],
)
def test_endpoint_and_registry_are_reached_where_https_would_be(rule: Rule, reached: bool):
    out = chain(node_rules(instance(4), group(egress=(rule,)), {}, AROUND), "RIG-OUT")
    services = ["-d 198.18.77.1/32 -p tcp --dport 5000 -j ACCEPT", "-d 198.18.77.1/32 -p tcp --dport 5001 -j ACCEPT"]
    assert [line for line in services if line in out] == (services if reached else [])


def test_the_public_address_leads_to_the_private_one_and_stands_for_it_outside():
    text = node_rules(instance(4), group(), {}, AROUND)
    assert "-d 198.18.77.4/32 -j DNAT --to-destination 10.77.0.4" in chain(text, "RIG-DNAT")
    assert chain(text, "RIG-SNAT") == [
        "-d 198.18.77.1/32 -j RETURN",
        "-s 10.77.0.4/32 -d 198.18.77.0/24 -j SNAT --to-source 198.18.77.4",
    ]
    private = node_rules(instance(4, public=False), group(), {}, AROUND)
    assert chain(private, "RIG-SNAT") == []
    assert all(line.startswith("-d 169.254.169.254/32") for line in chain(private, "RIG-DNAT"))


def test_the_text_is_the_same_whatever_the_order_of_members_and_holds_each_rule_once():
    rule = Rule(protocol="tcp", from_port=1, to_port=2, cidrs=("10.0.0.0/8", "10.0.0.0/8"), group_ids=("sg-1",))
    one = node_rules(instance(4), group(ingress=(rule, rule)), members_of([instance(4), instance(5)]), AROUND)
    two = node_rules(instance(4), group(ingress=(rule, rule)), members_of([instance(5), instance(4)]), AROUND)
    assert one == two
    assert len(chain(one, "RIG-IN")) == len(set(chain(one, "RIG-IN"))) == 5


def test_name_servers_are_asked_past_every_group():
    text = node_rules(instance(4), group(), {}, replace(AROUND, resolvers=("192.0.2.53",)))
    assert [line for line in chain(text, "RIG-OUT") if "--dport 53" in line] == [
        "-d 192.0.2.53/32 -p udp --dport 53 -j ACCEPT",
        "-d 192.0.2.53/32 -p tcp --dport 53 -j ACCEPT",
    ]


def test_loopback_and_ipv6_name_servers_are_not_reached_over_the_network():
    text = "search lan\nnameserver 127.0.0.53\nnameserver fe80::1\nnameserver 192.0.2.53 # first\noptions edns0\n"
    assert host_resolvers(text) == ("192.0.2.53",)
