"""The world's AWS: moto with its gaps filled, and the one call to it that no AWS has."""

import logging
from contextlib import ExitStack

import requests

from rehearsal.aws.server import Server, serve
from rehearsal.world.places import Places
from rehearsal.world.record import Plan

_ANSWER_SECONDS = 10

log = logging.getLogger("rehearsal.world")


def open_aws(place: Places, plan: Plan, *, host: str, public_cidr: str | None, parts: ExitStack) -> Server:
    """Serves moto until the parts are closed.

    Raises:
        OSError: the address cannot be listened on.
    """
    place.requests.unlink(missing_ok=True)
    server = serve(
        host=host,
        port=0,
        world_id=plan.world_id,
        account_id=plan.account_id,
        region=plan.region,
        public_cidr=public_cidr,
        request_log=place.requests,
        weigh_policies=True,
    )
    parts.callback(server.stop)
    log.info("AWS answers at %s", server.url)
    return server


def report_power_off(endpoint_url: str, instance_id: str) -> None:
    """Tells moto that an instance has powered itself off.

    Raises:
        requests.RequestException: it did not answer, or does not know the instance.
    """
    url = f"{endpoint_url}/rayrig-rehearsal/instances/{instance_id}/powered-off"
    requests.post(url, timeout=_ANSWER_SECONDS).raise_for_status()
