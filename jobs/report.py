"""What a person, or a program, is told at the end: return, steps, seconds and where the run is."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from contract.errors import CloudError, ConfigError, JobError
from contract.inventory import Inventory


@dataclass(frozen=True, kw_only=True)
class Report:
    """The end of a job. Figures are None when the run left no summary."""

    run: str
    run_uri: str
    state: str
    """The job's: SUCCEEDED, FAILED, STOPPED, LOST; SUBMITTED when it goes on without us."""
    run_state: str | None
    """The training's own, from its summary: succeeded, target_missed, stopped, failed."""
    exit_code: int
    mean_return: float | None
    env_steps: int | None
    seconds: float | None
    """Training seconds, start-up apart."""
    total_seconds: float
    """From the command's start to its end."""
    first_metric_seconds: float | None
    """From the command's start to the first report of an iteration."""
    error: str | None

    def as_json(self) -> str:
        """One line; `return` is the mean return of the latest held evaluation."""
        values = asdict(self)
        values["return"] = values.pop("mean_return")
        return json.dumps(values)

    def as_text(self) -> str:
        """For a person."""
        rows = [
            ("state", self.state if self.error is None else f"{self.state}: {self.error}"),
            ("return", "-" if self.mean_return is None else f"{self.mean_return:.1f}"),
            ("steps", "-" if self.env_steps is None else f"{self.env_steps:,}"),
            ("training", "-" if self.seconds is None else f"{self.seconds:.1f} s"),
            ("first metric", "-" if self.first_metric_seconds is None else f"after {self.first_metric_seconds:.1f} s"),
            ("in all", f"{self.total_seconds:.1f} s"),
            ("run", self.run_uri),
        ]
        return "\n".join(f"{name:<13} {value}" for name, value in rows)


def read_summary(run_uri: str, inventory: Inventory | None) -> dict[str, object] | None:
    """Reads a run's summary.json; None when it has none.

    Raises:
        CloudError: the bucket does not answer, or refuses.
        ConfigError: no AWS credentials.
        JobError: the summary is damaged.
    """
    text = _read_s3(f"{run_uri}/summary.json", inventory) if inventory else _read_local(f"{run_uri}/summary.json")
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise JobError("the run's summary is damaged", where=run_uri, why=str(error)) from error
    return value if isinstance(value, dict) else None


def make_report(
    *,
    run: str,
    run_uri: str,
    inventory: Inventory | None,
    state: str,
    exit_code: int,
    message: str | None,
    total_seconds: float,
    first_metric_seconds: float | None,
) -> Report:
    """Reads the summary and puts the end of a job together; a summary that can't be read is told, not raised."""
    summary: dict[str, object] = {}
    unread: str | None = None
    try:
        summary = read_summary(run_uri, inventory) or {}
    except (CloudError, ConfigError, JobError) as error:
        unread = f"the run's summary cannot be read: {error}"
    own_error = _text(summary.get("error"))
    steps = _number(summary.get("env_steps"))
    return Report(
        run=run,
        run_uri=run_uri,
        state=state,
        run_state=_text(summary.get("state")),
        exit_code=exit_code,
        mean_return=_number(summary.get("return")),
        env_steps=None if steps is None else int(steps),
        seconds=_number(summary.get("seconds")),
        total_seconds=round(total_seconds, 2),
        first_metric_seconds=first_metric_seconds,
        error=own_error or unread or (message if exit_code else None),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _read_local(uri: str) -> str | None:
    path = Path(unquote(urlsplit(uri).path))
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _read_s3(uri: str, inventory: Inventory) -> str | None:
    from account.clients import AwsError, aws_errors, client  # noqa: PLC0415 - boto3 is not needed for a local run

    place = urlsplit(uri)
    s3 = client("s3", region=inventory.region, endpoint=inventory.endpoint)
    try:
        with aws_errors("cannot read the run's summary", where=uri):
            answer = s3.get_object(Bucket=place.netloc, Key=place.path.lstrip("/"))
            return str(answer["Body"].read().decode())
    except AwsError as error:
        if error.not_found:
            return None
        raise
