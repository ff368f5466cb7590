"""Who the credentials belong to."""

import re
from dataclasses import dataclass
from typing import Any

from account.clients import aws_errors

_NOT_IN_TAGS = re.compile(r"[^\w .:/=+@-]")
_MAX_OWNER_CHARACTERS = 128


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The account and the principal behind the credentials at hand."""

    account_id: str
    arn: str

    @property
    def owner(self) -> str:
        """A short name for the owner tag: the user, or the session of an assumed role."""
        name = _NOT_IN_TAGS.sub("-", self.arn.rsplit(":", 1)[-1].rsplit("/", 1)[-1])
        return name[:_MAX_OWNER_CHARACTERS] or "unknown"


def caller(sts: Any) -> Caller:  # noqa: ANN401 - a boto3 client
    """Asks STS who we are (this needs no permission); raises ConfigError without credentials, CloudError otherwise."""
    with aws_errors("cannot learn which AWS account the credentials belong to"):
        answer = sts.get_caller_identity()
    return Caller(account_id=str(answer["Account"]), arn=str(answer["Arn"]))
