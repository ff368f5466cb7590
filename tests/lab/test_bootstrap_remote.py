"""SSH to a node that falls silent: before connecting, between two commands and in mid-command, each ends in time."""

import time
from contextlib import ExitStack, contextmanager

import pytest
from in_lab import LabWorld, until

from contract.errors import UnreachableError
from remote import ConnectionLostError, Deadlines, Target, TcpError, connect, connect_until

BOUNDS = Deadlines(tcp_seconds=2, channel_seconds=4, keepalive_seconds=1, dead_seconds=4)
SILENT = ["INPUT", "--protocol", "tcp", "--dport", "22", "--jump", "DROP"]
ANSWERS = ["OUTPUT", "--protocol", "tcp", "--sport", "22", "--jump", "DROP"]


@pytest.fixture(scope="module")
def target(lab: LabWorld):
    (instance_id,) = lab.launch()
    found = lab.target(instance_id, seconds=60)
    with connect_until(found, timeout_seconds=30, login=lab.login()):
        pass
    yield found
    lab.terminate(instance_id)


@contextmanager
def black_hole(lab: LabWorld, target: Target):
    """The node drops SSH's packets in both directions; nothing is refused."""
    for rule in (SILENT, ANSWERS):
        assert lab.on(target.name, ["iptables", "--insert", *rule])[0] == 0
    try:
        yield
    finally:
        for rule in (SILENT, ANSWERS):
            assert lab.on(target.name, ["iptables", "--delete", *rule])[0] == 0


@contextmanager
def within(seconds: float):
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def test_before_connecting(lab, target):
    with (
        black_hole(lab, target),
        within(4),
        pytest.raises(TcpError, match="no answer on TCP port 22"),
        connect(target, login=lab.login(), deadlines=BOUNDS),
    ):
        pass


def test_between_two_commands(lab, target):
    with connect(target, login=lab.login(), deadlines=BOUNDS) as connection:
        assert connection.run(["true"], timeout_seconds=10).ok
        with black_hole(lab, target), within(12), pytest.raises(UnreachableError):
            connection.run(["true"], timeout_seconds=60)
        until(lambda: _works(connection), seconds=20, what="the connection comes back by itself")


def _works(connection) -> bool:
    try:
        return connection.run(["true"], timeout_seconds=10).ok
    except UnreachableError:
        return False


def test_in_mid_command(lab, target):
    with (
        ExitStack() as holes,
        connect(target, login=lab.login(), deadlines=BOUNDS) as connection,
        within(15),
        pytest.raises(ConnectionLostError, match="during `sh"),
    ):
        connection.run(
            ["sh", "-c", "echo begun; sleep 60"],
            timeout_seconds=60,
            on_output=lambda _: holes.enter_context(black_hole(lab, target)),
        )


def test_a_paused_machine(lab, target):
    machine = lab.container(target.name)
    assert machine is not None
    with connect(target, login=lab.login(), deadlines=BOUNDS) as connection:
        machine.pause()
        try:
            # The kernel still answers for the frozen sshd, so only the channel's own deadline ends this.
            with within(15), pytest.raises(UnreachableError):
                connection.run(["true"], timeout_seconds=10)
        finally:
            machine.unpause()
