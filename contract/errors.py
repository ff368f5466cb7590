"""Errors that a person reads: what failed, where, why, and what to do next."""

from contract.exit_codes import ExitCode


class RayrigError(Exception):
    """A failure told in four parts; every error that leaves a room is one of these.

    Args:
        what: what failed, in one clause.
        where: the node, resource, file or config key it concerns; None when it concerns the whole.
        why: the cause as far as it is known, the other side's own words kept.
        next_step: the next thing to try, a command where there is one.
    """

    exit_code: ExitCode = ExitCode.FAILURE

    def __init__(
        self, what: str, *, where: str | None = None, why: str | None = None, next_step: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.next_step = next_step

    def __str__(self) -> str:
        """One readable paragraph, without a traceback."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        text = _sentence(head)
        if self.why:
            text = f"{text} {_sentence(self.why)}"
        return f"{text} Next: {self.next_step.strip()}" if self.next_step else text


def _sentence(text: str) -> str:
    """The text with one mark at its end."""
    text = text.strip()
    return text if text.endswith(("?", "!")) else f"{text.rstrip('.')}."


class ConfigError(RayrigError):
    """The person's configuration is wrong or incomplete."""

    exit_code = ExitCode.USAGE


class CloudError(RayrigError):
    """AWS answered with an error, or did not answer."""


class WrongAccountError(RayrigError):
    """The credentials or the endpoint are not those that the cluster was made with (the safety interlock)."""


class UnreachableError(RayrigError):
    """A machine could not be reached, or would not let us in, within its deadline."""


class StepError(RayrigError):
    """A bootstrap step failed on a node."""


class NotReadyError(RayrigError):
    """The cluster is up but a proof of readiness failed."""


class JobError(RayrigError):
    """A job could not be submitted, followed or found."""


class LeftoversError(RayrigError):
    """A destroy left something behind."""
