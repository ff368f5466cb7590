"""What an instance does by itself: powering off, seen by EC2 as its shutdown behaviour says."""

from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import StateReason

from rehearsal.aws.launches import settle_ended

BY_ITSELF = "Client.InstanceInitiatedShutdown"


class NoSuchInstance(LookupError):  # noqa: N818 - a plain look-up that found nothing
    """No region has an instance of this id."""


def powered_off(account_id: str, instance_id: str) -> str:
    """Tells EC2 that an instance powered itself off; one that is no longer running stays as it is.

    Returns:
        Its state now: `terminated` or `stopped`, as its shutdown behaviour says.

    Raises:
        NoSuchInstance: the id is unknown in every region in use.
    """
    instance = _find(account_id, instance_id)
    if instance.state != "running":
        return str(instance.state)
    if instance.instance_initiated_shutdown_behavior == "terminate":
        instance.terminate()
        settle_ended(instance.ec2_backend)
    else:
        instance.stop()
    instance._reason = ""
    instance.state_reason = StateReason(f"{BY_ITSELF}: Instance initiated shutdown", BY_ITSELF)
    return str(instance.state)


def _find(account_id: str, instance_id: str) -> Any:  # noqa: ANN401 - moto's model
    for ec2 in list(ec2_backends[account_id].values()):
        instance = ec2.get_instance_by_id(instance_id)
        if instance is not None:
            return instance
    raise NoSuchInstance(instance_id)
