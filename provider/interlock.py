"""The safety interlock: nothing is read or changed with credentials or an endpoint that are not the cluster's."""

import json
import threading
import urllib.request
from http.client import HTTPException
from typing import Any

from account.clients import client, endpoint_from_environment
from account.identity import caller
from contract.errors import CloudError, WrongAccountError
from contract.inventory import Endpoint, EndpointKind
from contract.resources import Home

MARKER_PATH = "/rayrig-rehearsal"
"""Where a rehearsal says whose it is; AWS itself has nothing there."""
MARKER_SECONDS = 5.0
MAX_MARKER_BYTES = 4096


class Interlock:
    """Compares a home with the shell and the account behind it, once per home and process."""

    def __init__(self) -> None:
        self._passed: set[Home] = set()
        self._lock = threading.Lock()

    def require(self, home: Home) -> None:
        """Returns when the credentials and the endpoint at hand are those of `home`.

        Raises:
            WrongAccountError: they are not; the message names both.
            CloudError: nothing answers at the endpoint, or AWS refused to say who we are.
            ConfigError: there are no credentials.
        """
        with self._lock:
            if home in self._passed:
                return
            _require_endpoint(home)
            if home.endpoint.kind is EndpointKind.REHEARSAL:
                _require_world(home)
            _require_account(home)
            self._passed.add(home)


def _require_endpoint(home: Home) -> None:
    here = endpoint_from_environment()
    if here == home.endpoint:
        return
    raise WrongAccountError(
        f"the cluster lives in {_named(home.endpoint)}, this shell talks to {_named(here)}",
        why="nothing was read or changed",
        next_step=_way_back(home.endpoint),
    )


def _require_world(home: Home) -> None:
    marker = _read_marker(str(home.endpoint.url))
    there = (marker.get("accountId"), marker.get("region"))
    if there != (home.account_id, home.region):
        raise WrongAccountError(
            f"the cluster lives in account {home.account_id}, region {home.region}, but the rehearsal at "
            f"{home.endpoint.url} is account {there[0]}, region {there[1]}",
            why="it is another rehearsal's world; nothing was read or changed",
            next_step="python -m rehearsal status",
        )


def _read_marker(url: str) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this machine: never by a proxy
    try:
        with opener.open(f"{url}{MARKER_PATH}", timeout=MARKER_SECONDS) as reply:
            marker = json.loads(reply.read(MAX_MARKER_BYTES))
    except (OSError, HTTPException, ValueError) as error:
        raise CloudError(
            "the rehearsal that the cluster lives in does not answer",
            where=url,
            why=f"{error}; nothing was read or changed",
            next_step="python -m rehearsal status; a world that has ended took its cluster with it",
        ) from error
    return marker if isinstance(marker, dict) else {}


def _require_account(home: Home) -> None:
    found = caller(client("sts", region=home.region, endpoint=home.endpoint))
    if found.account_id != home.account_id:
        raise WrongAccountError(
            f"the cluster lives in account {home.account_id}, the credentials are of account {found.account_id}",
            where=found.arn,
            why="nothing was read or changed",
            next_step=f"set AWS_PROFILE to credentials of account {home.account_id}",
        )


def _named(endpoint: Endpoint) -> str:
    return f"the rehearsal at {endpoint.url}" if endpoint.url else "AWS itself"


def _way_back(endpoint: Endpoint) -> str:
    if endpoint.kind is EndpointKind.REHEARSAL:
        return 'eval "$(python -m rehearsal env)"'
    return "unset AWS_ENDPOINT_URL, or open a shell without `rehearsal env`"
