"""The provider's configuration, and the safety interlock: the double works for a rehearsal and for nothing else."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contract.errors import CloudError, ConfigError, WrongAccountError
from rehearsal.double.session import Session
from rehearsal.double.table import HOW_TO
from rehearsal.double.values import UNKNOWN, Values, holds_unknown

MARKER = "/rayrig-rehearsal"
MARKER_SECONDS = 5.0
DEFAULT_RETRIES = 25
"""The provider's own default of maxRetries."""
SIMULATED = frozenset({
    "accessKey", "allowedAccountIds", "defaultTags", "endpoints", "maxRetries", "profile", "region", "retryMode",
    "s3UsePathStyle", "secretKey", "skipCredentialsValidation", "skipMetadataApiCheck", "skipRegionValidation",
    "skipRequestingAccountId", "token", "version", "pluginDownloadURL",
})  # fmt: skip
NOT_A_REHEARSAL = "this is the rehearsal's stand-in for the aws provider, and the stack does not belong to a rehearsal"
LEAVE = (
    "for a real account, run the command in a shell without `rehearsal env`; for a rehearsal, select its stack "
    "(`pulumi stack select rehearsal`)"
)


@dataclass(frozen=True, kw_only=True)
class World:
    """What the marker at an endpoint says."""

    world_id: str
    account_id: str
    region: str


def decoded(inputs: Values) -> Values:
    """Provider inputs in plain form: the SDK writes everything but strings as JSON text."""
    return {key: _decoded(value) for key, value in inputs.items()}


def _decoded(value: Any) -> Any:  # noqa: ANN401 - any value
    if isinstance(value, str) and value[:1] in {"[", "{"}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def check_config(inputs: Values) -> dict[str, str]:
    """What is wrong with the configuration's form: property -> reason."""
    wrong = {
        key: f"the rehearsal's aws provider does not simulate {key} in the provider's configuration: "
        f"add it as {HOW_TO} shows, or leave it out in rehearsal"
        for key in inputs
        if key not in SIMULATED
    }
    accounts = decoded(inputs).get("allowedAccountIds")
    if accounts is not None and accounts is not UNKNOWN and not isinstance(accounts, list):
        wrong["allowedAccountIds"] = "expected a list of account ids"
    return wrong


def endpoints_of(inputs: Values) -> dict[str, str]:
    """Service to URL, out of the provider's list of endpoint blocks; empty when there are none."""
    found = decoded(inputs).get("endpoints")
    blocks = found if isinstance(found, list) else []
    return {
        service: url.rstrip("/")
        for block in blocks
        if isinstance(block, Mapping)
        for service, url in block.items()
        if isinstance(url, str) and url
    }


def open_session(inputs: Values) -> Session:
    """The session that a configuration allows: only to a rehearsal that answers, in its own account.

    Raises:
        WrongAccountError: no endpoints, something else answers there, the account is another one, or the shell talks
            to another AWS (`destroy` configures us from what the stack recorded, which alone proves nothing).
        CloudError: nothing answers.
        ConfigError: no region.
    """
    config = decoded(inputs)
    endpoints = endpoints_of(inputs)
    if holds_unknown(config.get("endpoints")) or holds_unknown(config.get("allowedAccountIds")):
        raise ConfigError("endpoints and allowedAccountIds of the aws provider must be known before anything is made")
    if not endpoints:
        raise WrongAccountError(NOT_A_REHEARSAL, where="aws provider", why="it has no endpoints", next_step=LEAVE)
    urls = sorted(set(endpoints.values()))
    if len(urls) > 1:
        raise WrongAccountError(
            NOT_A_REHEARSAL, where="aws provider", why=f"its endpoints differ: {', '.join(urls)}", next_step=LEAVE
        )
    world = ask_marker(urls[0])
    allowed = config.get("allowedAccountIds") or []
    if allowed != [world.account_id]:
        said = ", ".join(map(str, allowed)) or "no account at all"
        raise WrongAccountError(
            "the stack belongs to another account than this rehearsal's; nothing was changed",
            where="aws provider",
            why=f"allowedAccountIds names {said}, but {urls[0]} is rehearsal {world.world_id} of account "
            f"{world.account_id}",
            next_step="select the stack that this rehearsal made (`pulumi stack select rehearsal`), or start anew: "
            "`python -m rehearsal stop`, `python -m rehearsal start`",
        )
    _require_shell(urls[0])
    region = config.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError("no AWS region is set", next_step="pulumi config set aws:region eu-west-1")
    return Session(
        endpoints=endpoints,
        account_id=world.account_id,
        region=region,
        default_tags=(config.get("defaultTags") or {}).get("tags", {}),
        max_attempts=1 + int(config.get("maxRetries", DEFAULT_RETRIES)),
        credentials={name: str(config[key]) for key, name in CREDENTIALS.items() if config.get(key)},
    )


def _require_shell(url: str) -> None:
    here = os.environ.get("AWS_ENDPOINT_URL", "").rstrip("/")
    if here != url:
        raise WrongAccountError(
            "the stack belongs to another AWS than this shell's; nothing was changed",
            where="aws provider",
            why=f"the stack lives in the rehearsal at {url}, this shell talks to {here or 'AWS itself'}",
            next_step='eval "$(python -m rehearsal env)", or select the stack of the AWS that this shell talks to',
        )


CREDENTIALS = {
    "accessKey": "aws_access_key_id",
    "secretKey": "aws_secret_access_key",
    "token": "aws_session_token",
    "profile": "profile_name",
}
"""The configuration's names of credentials, and boto's."""


def ask_marker(url: str) -> World:
    """Which rehearsal answers at a URL.

    Raises:
        CloudError: nothing answers.
        WrongAccountError: something answers that is no rehearsal.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url + MARKER, timeout=MARKER_SECONDS) as answer:
            found = json.load(answer)
        return World(world_id=found["worldId"], account_id=found["accountId"], region=found["region"])
    except urllib.error.HTTPError as error:
        raise WrongAccountError(
            NOT_A_REHEARSAL, where="aws provider", why=f"{url} answers, but as no rehearsal ({error})", next_step=LEAVE
        ) from error
    except OSError as error:
        raise CloudError(
            "this stack belongs to a rehearsal that has ended; nothing was changed",
            where="aws provider",
            why=f"nothing answers at {url} ({getattr(error, 'reason', error)})",
            next_step="`python -m rehearsal start` makes a new one with a stack of its own; this stack's resources "
            "ended with their rehearsal",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise WrongAccountError(
            NOT_A_REHEARSAL, where="aws provider", why=f"{url} answers, but as no rehearsal", next_step=LEAVE
        ) from error


def refuse_another_world(olds: Values, news: Values) -> None:
    """A stack stays in the world that it was made in.

    Raises:
        WrongAccountError: the configuration moves to another account or from or to a rehearsal.
    """
    before, now = decoded(olds).get("allowedAccountIds"), decoded(news).get("allowedAccountIds")
    if before != now or bool(endpoints_of(olds)) != bool(endpoints_of(news)):
        raise WrongAccountError(
            "the stack belongs to another account than this shell's; nothing was changed",
            where="aws provider",
            why=f"it was made with allowedAccountIds {before}, now they are {now}",
            next_step=LEAVE,
        )
