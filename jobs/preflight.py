"""What can be known to go wrong before a job is submitted."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from account.clients import aws_errors, client, endpoint_from_environment
from contract.errors import ConfigError, JobError, WrongAccountError
from contract.inventory import Inventory
from jobs.train.config import Needs

if TYPE_CHECKING:
    from jobs.client import RayNode


def check_deadline(inventory: Inventory, now: datetime) -> None:
    """Refuses a cluster that has ended itself; raises JobError."""
    if inventory.remaining_seconds(now) <= 0:
        raise JobError(
            f"the cluster ended itself at {inventory.deadline:%Y-%m-%d %H:%M %Z}",
            where=inventory.cluster_id,
            next_step="pulumi up",
        )


def check_endpoint(inventory: Inventory) -> None:
    """Refuses a shell that talks to another AWS than the cluster's; raises WrongAccountError."""
    here = endpoint_from_environment()
    if here != inventory.endpoint:
        raise WrongAccountError(
            "this shell talks to another AWS than the cluster's",
            where=inventory.cluster_id,
            why=f"the cluster is in {inventory.endpoint.url or 'AWS'}, the shell's AWS_ENDPOINT_URL is "
            f"{here.url or 'not set'}",
            next_step=(
                "open another shell for AWS"
                if inventory.endpoint.url is None
                else 'eval "$(python -m rehearsal env)", in the world that made the stack'
            ),
        )


def check_account(inventory: Inventory) -> str | None:
    """Refuses credentials of another account.

    Returns:
        Why it could not be checked (no credentials: they are needed only for the report), or None.

    Raises:
        WrongAccountError: the credentials are another account's.
        CloudError: AWS does not answer, or refuses the credentials.
    """
    try:
        sts = client("sts", region=inventory.region, endpoint=inventory.endpoint)
        with aws_errors("cannot ask AWS whose credentials these are"):
            account = str(sts.get_caller_identity()["Account"])
    except ConfigError as error:
        return str(error)
    if account != inventory.account_id:
        raise WrongAccountError(
            "the credentials are another account's",
            where=inventory.cluster_id,
            why=f"the cluster is in {inventory.account_id}, the credentials in {account}",
            next_step="set AWS_PROFILE to the account that made the cluster",
        )
    return None


def check_needs(needs: Needs, nodes: Sequence["RayNode"]) -> None:
    """Refuses what the cluster can't give: Ray would let it wait for ever. Raises JobError."""
    alive = [node for node in nodes if node.alive]
    gpus = sum(node.resources.get("GPU", 0.0) for node in alive)
    cpus = sum(node.resources.get("CPU", 0.0) for node in alive)
    seen = f"{len(alive)} alive node{'' if len(alive) == 1 else 's'}"
    for name, wanted, there in (("GPU", needs.gpus, gpus), ("CPU", max(needs.runners, 1), cpus)):
        if wanted > there:
            raise JobError(
                f"the job needs {wanted} {name}{'' if wanted == 1 else 's'}, the cluster has {there:g}",
                why=f"seen on {seen}",
                next_step="ask for less with --set, or for more with `pulumi config set workers N` and `pulumi up`",
            )


def missing_nodes(inventory: Inventory, nodes: Sequence["RayNode"]) -> list[str]:
    """Names of the cluster's nodes that Ray does not count as alive."""
    alive = {node.address for node in nodes if node.alive}
    return [node.name for node in inventory.nodes if node.private_ip not in alive]
