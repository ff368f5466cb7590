import pytest

from rehearsal.nodes.decisions import Action, Machine, decide
from rehearsal.nodes.instances import Instance


def instance(state: str) -> Instance:
    return Instance(
        instance_id="i-1",
        state=state,
        instance_type="m7i.large",
        image_id="ami-1",
        private_ip="10.77.0.4",
        public_ip=None,
        key_name=None,
        subnet_id="subnet-1",
        vpc_id="vpc-1",
        availability_zone="eu-west-1a",
        group_ids=(),
        group_names=(),
        profile_arn=None,
        token_required=True,
    )


UP = Machine(container_id="c", running=True, exit_code=None)


def still(exit_code: int | None) -> Machine:
    return Machine(container_id="c", running=False, exit_code=exit_code)


@pytest.mark.parametrize(
    ("state", "machine", "expected"),
    [
        ("pending", None, Action.CREATE),
        ("running", None, Action.CREATE),
        ("stopped", None, None),
        (None, None, None),
        (None, UP, Action.REMOVE),
        (None, still(137), Action.REMOVE),
        ("running", UP, None),
        ("stopping", UP, Action.STOP),
        ("stopped", UP, Action.STOP),
        ("stopped", still(130), None),
        ("running", still(130), Action.REPORT_POWER_OFF),
        ("running", still(0), Action.REPORT_POWER_OFF),
        ("running", still(137), None),
        ("running", still(129), Action.START),
        ("running", still(133), Action.START),
        ("running", still(None), None),
    ],
)
def test_a_node_follows_its_instance(state: str | None, machine: Machine | None, expected: Action | None):
    found = decide(instance(state) if state else None, machine, stopped_by_cloud=False, reboot=False)
    assert found is expected


@pytest.mark.parametrize("exit_code", [0, 130, 137])
def test_a_node_that_ec2_stopped_is_started_again_however_it_ended(exit_code: int):
    assert decide(instance("running"), still(exit_code), stopped_by_cloud=True, reboot=False) is Action.START


def test_a_reboot_wakes_even_a_dead_node():
    assert decide(instance("running"), UP, stopped_by_cloud=False, reboot=True) is Action.REBOOT
    assert decide(instance("running"), still(137), stopped_by_cloud=False, reboot=True) is Action.START
    assert decide(None, UP, stopped_by_cloud=False, reboot=True) is Action.REMOVE
