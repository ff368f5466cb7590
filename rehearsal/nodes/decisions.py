"""What a node needs so that it follows its instance: one decision at a time, from facts alone."""

from dataclasses import dataclass
from enum import StrEnum

from rehearsal.nodes.instances import UP, Instance

KILLED_EXIT_CODE = 137
"""128 + SIGKILL: the machine died; EC2 goes on calling such an instance running."""
REBOOT_EXIT_CODES = frozenset({129, 133})
"""How init ends at a reboot: by the kernel's SIGHUP, or with systemd's code for containers that may not reboot."""


class Action(StrEnum):
    """What the reconciler may do to a node."""

    CREATE = "create"
    START = "start"
    STOP = "stop"
    REBOOT = "reboot"
    ENFORCE = "enforce the security groups of"
    REMOVE = "remove"
    REPORT_POWER_OFF = "report the power-off of"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A node's container as Docker shows it."""

    container_id: str
    running: bool
    exit_code: int | None
    """None while it runs or has never run."""


def decide(
    instance: Instance | None, machine: Machine | None, *, stopped_by_cloud: bool, reboot: bool
) -> Action | None:
    """The next thing to do for one node; None when it is as it should be.

    Args:
        instance: None when the instance is terminated or never was.
        machine: None when there is no container.
        stopped_by_cloud: whether the machine stands still because EC2 stopped it.
        reboot: whether EC2 was asked to reboot it.
    """
    if machine is None:
        return Action.CREATE if instance and instance.state in UP else None
    if instance is None:
        return Action.REMOVE
    if instance.state not in UP:
        return Action.STOP if machine.running else None
    if machine.running:
        return Action.REBOOT if reboot else None
    return Action.START if reboot else _when_still(machine, stopped_by_cloud=stopped_by_cloud)


def _when_still(machine: Machine, *, stopped_by_cloud: bool) -> Action | None:
    if stopped_by_cloud or machine.exit_code in REBOOT_EXIT_CODES:
        return Action.START
    if machine.exit_code is None or machine.exit_code == KILLED_EXIT_CODE:
        return None
    return Action.REPORT_POWER_OFF
