import json
import time
from pathlib import Path

import pytest

from contract.exit_codes import ExitCode
from jobs.client import JobState
from jobs.first_metric import FirstMetric
from jobs.follow import Outcome
from jobs.report import Report, make_report


def _report(run: Path, *, exit_code: int = 0, state: str = "SUCCEEDED", message: str | None = None) -> Report:
    return make_report(
        run="a",
        run_uri=run.as_uri(),
        inventory=None,
        state=state,
        exit_code=exit_code,
        message=message,
        total_seconds=12.345,
        first_metric_seconds=6.0,
    )


def test_the_summary_is_told_to_people_and_programs(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    run.mkdir()
    summary = {"state": "succeeded", "return": 499.25, "env_steps": 74524, "seconds": 13.0, "error": None}
    (run / "summary.json").write_text(json.dumps(summary))
    report = _report(run)
    text = report.as_text()
    for piece in ("499.2", "74,524", "13.0 s", "after 6.0 s", run.as_uri()):
        assert piece in text
    values = json.loads(report.as_json())
    assert (values["return"], values["env_steps"], values["exit_code"]) == (499.25, 74524, 0)
    assert {"state", "run_state", "seconds", "first_metric_seconds", "run_uri", "run", "error"} <= set(values)


def test_a_job_that_left_no_summary_is_still_reported(tmp_path: Path) -> None:
    report = _report(tmp_path, exit_code=137, state="FAILED", message="the driver was killed")
    assert report.mean_return is None
    assert "FAILED: the driver was killed" in report.as_text()


def test_a_damaged_summary_is_told_not_raised(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{")
    assert "damaged" in str(_report(tmp_path).error)


@pytest.mark.parametrize(
    ("state", "driver", "expected"),
    [
        (JobState.SUCCEEDED, 0, 0),
        (JobState.FAILED, 3, 3),
        (JobState.FAILED, None, ExitCode.FAILURE),
        (JobState.FAILED, 0, ExitCode.FAILURE),
        (JobState.FAILED, -9, 137),
        (JobState.STOPPED, 0, ExitCode.STOPPED),
        (None, None, ExitCode.LOST),
    ],
)
def test_exit_codes_follow_the_jobs_state(state: JobState | None, driver: int | None, expected: int) -> None:
    """J-05."""
    outcome = Outcome(state=state, driver_exit_code=driver, message="", first_metric_seconds=None)
    assert outcome.exit_code == expected


def test_the_first_metric_is_noticed_across_pieces() -> None:
    first = FirstMetric(time.monotonic())
    for piece in ("loading\nit", "erations\nite", "r    1"):
        first.take(piece)
        assert first.seconds is None
    first.take("  steps 10\n")
    assert first.seconds is not None
