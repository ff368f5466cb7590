"""Brings a cluster back from its inventory alone: the same steps as `pulumi up`, without Pulumi."""

from bootstrap.converge import converge_fleet
from bootstrap.progress import Report
from contract.inventory import Inventory
from contract.resources import Home, RayFleetInputs, RayFleetOutputs


def fleet_inputs(inventory: Inventory) -> RayFleetInputs:
    """The fleet that an inventory describes."""
    return RayFleetInputs(
        home=Home(account_id=inventory.account_id, region=inventory.region, endpoint=inventory.endpoint),
        cluster_id=inventory.cluster_id,
        head=inventory.head,
        user=inventory.access.user,
        image=inventory.image.reference,
        ports=inventory.ports,
        health_check=inventory.health_check,
        storage=inventory.storage,
        workers=inventory.workers,
    )


def repair(inventory: Inventory, *, report: Report) -> RayFleetOutputs:
    """Runs every step on every node of the inventory and proves the cluster ready; what is as wanted stays.

    Raises:
        StepError, NotReadyError, UnreachableError: as `converge_fleet`.
    """
    return converge_fleet(fleet_inputs(inventory), previous=None, report=report)
