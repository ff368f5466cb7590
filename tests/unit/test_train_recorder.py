import json
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.errors import JobError
from jobs.train.recorder import CheckpointRecord, Recorder


def _record(iteration: int, **more: float) -> CheckpointRecord:
    return CheckpointRecord(
        name=f"iteration-{iteration}", iteration=iteration, env_steps=iteration * 100, seconds=1.0, **more
    )


@pytest.fixture
def local_checkpoint(tmp_path: Path) -> Callable[[int], Path]:
    def make(iteration: int) -> Path:
        folder = tmp_path / f"local-{iteration}" / "inner"
        folder.mkdir(parents=True)
        (folder / "weights").write_text(str(iteration))
        return folder.parent

    return make


def _names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_a_run_directory_holds_everything(tmp_path: Path, local_checkpoint: Callable[[int], Path]) -> None:
    run = tmp_path / "a run"
    recorder = Recorder(run.as_uri())
    recorder.start({"lr": 1}, {"versions": {}})
    for iteration in (1, 2):
        recorder.metric({"iteration": iteration})
    recorder.say("hello")
    recorder.checkpoint(local_checkpoint(2), _record(2), best=True)
    recorder.finish({"state": "succeeded"})
    assert json.loads((run / "config.json").read_text()) == {"lr": 1}
    assert [json.loads(row)["iteration"] for row in (run / "metrics.jsonl").read_text().splitlines()] == [1, 2]
    assert (run / "log").read_text() == "hello\n"
    assert json.loads((run / "summary.json").read_text()) == {"state": "succeeded"}
    assert (run / "checkpoints" / "iteration-2" / "inner" / "weights").read_text() == "2"
    assert not list(run.glob(".*")), "nothing half-written is left"


def test_best_and_latest_are_kept_and_nothing_else(tmp_path: Path, local_checkpoint: Callable[[int], Path]) -> None:
    recorder = Recorder((tmp_path / "run").as_uri())
    for iteration, best in ((1, True), (2, True), (3, False), (4, False)):
        recorder.checkpoint(local_checkpoint(iteration), _record(iteration), best=best)
    recorder.finish({})
    assert _names(tmp_path / "run") == ["best.json", "iteration-2", "iteration-4", "latest.json"]
    assert not list(tmp_path.glob("local-*")), "local copies are removed once uploaded"


def test_a_checkpoint_that_fails_to_upload_is_never_pointed_at(
    tmp_path: Path, local_checkpoint: Callable[[int], Path]
) -> None:
    run = tmp_path / "run"
    recorder = Recorder(run.as_uri())
    recorder.checkpoint(local_checkpoint(1), _record(1), best=False)
    recorder.checkpoint(tmp_path / "absent", _record(2), best=False)
    with pytest.raises(JobError, match="last checkpoint could not be saved"):
        recorder.finish({"state": "succeeded"})
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["name"] == "iteration-1"


def test_a_resumed_run_goes_on_from_the_latest_checkpoint(
    tmp_path: Path, local_checkpoint: Callable[[int], Path]
) -> None:
    uri = (tmp_path / "run").as_uri()
    first = Recorder(uri)
    first.start({}, {})
    for iteration in (1, 2, 3):
        first.metric({"iteration": iteration})
    first.say("before")
    first.checkpoint(local_checkpoint(2), _record(2, best=7.0), best=True)
    first.finish({"state": "stopped"})

    second = Recorder(uri)
    resumed = second.resume()
    assert resumed is not None
    folder, record = resumed
    assert (folder / "inner" / "weights").read_text() == "2"
    assert (record.iteration, record.best) == (2, 7.0)
    second.metric({"iteration": 3, "again": True})
    second.say("after")
    second.checkpoint(local_checkpoint(4), _record(4), best=False)
    second.finish({"state": "succeeded"})
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"iteration": 1}, {"iteration": 2}, {"iteration": 3, "again": True}]
    assert (tmp_path / "run" / "log").read_text() == "before\nafter\n"
    assert _names(tmp_path / "run") == ["best.json", "iteration-2", "iteration-4", "latest.json"]


def test_a_run_without_a_checkpoint_starts_anew(tmp_path: Path) -> None:
    assert Recorder((tmp_path / "run").as_uri()).resume() is None


def test_storage_that_takes_no_file_is_an_error_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match="cannot write the run directory"):
        Recorder((tmp_path / "file" / "run").as_uri()).start({}, {})


def test_an_unknown_storage_is_named() -> None:
    with pytest.raises(JobError, match="cannot open the run directory"):
        Recorder("nowhere://bucket/run")
