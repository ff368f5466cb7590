from ipaddress import IPv4Network

from rehearsal.world.network import PRIVATE_BLOCKS, PUBLIC_BLOCKS, LabNetwork, free_blocks, host_routes

ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
eth0\t0002004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
""".replace("0002004D0A", "00024D0A")


def test_the_kernels_table_is_read():
    assert host_routes(ROUTES) == [
        IPv4Network("0.0.0.0/0"),
        IPv4Network("172.17.0.0/16"),
        IPv4Network("10.77.2.0/24"),
    ]


def test_a_taken_block_is_passed_over_and_a_default_route_takes_none():
    assert str(next(free_blocks(PRIVATE_BLOCKS, host_routes(ROUTES)))) == "10.78.0.0/16"
    assert str(next(free_blocks(PUBLIC_BLOCKS, host_routes(ROUTES)))) == "198.18.77.0/24"


def test_nothing_is_free_where_everything_is_taken():
    assert list(free_blocks(PRIVATE_BLOCKS, [IPv4Network("10.0.0.0/8")])) == []


def test_the_persons_side_is_the_first_public_address():
    network = LabNetwork(
        name="n", bridge="b", private=IPv4Network("10.77.0.0/16"), public=IPv4Network("198.18.77.0/24")
    )
    assert (network.bridge_address, network.user_address) == ("10.77.0.1", "198.18.77.1")
