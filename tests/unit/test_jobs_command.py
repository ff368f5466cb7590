import subprocess
import sys
from pathlib import Path

import pytest

from contract.errors import ConfigError, JobError
from contract.exit_codes import ExitCode
from jobs import command
from jobs.catalog import ENTRIES, find_entry
from jobs.command import Options, plan_run
from jobs.settings import merge, parse_assignment
from jobs.train.config import PPOConfig


def test_every_entry_of_the_catalog_can_be_loaded() -> None:
    for entry in ENTRIES.values():
        model = entry.config_model()
        model.model_validate(entry.defaults).needs()


def test_an_unknown_job_names_its_nearest_neighbour() -> None:
    with pytest.raises(ConfigError, match="did you mean 'ppo'"):
        find_entry("poo")


def test_later_settings_win_and_values_are_read_as_yaml(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("lr: 0.1\nseed: 3\n")
    settings = merge({"seed": 1, "epochs": 2}, file, ["lr=1e-3", "hidden=[8, 8]", "target_return=null"])
    assert settings == {"seed": 3, "epochs": 2, "lr": "1e-3", "hidden": [8, 8], "target_return": None}


@pytest.mark.parametrize("text", ["lr", "=1", "hidden=[1"])
def test_a_setting_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        parse_assignment(text)


@pytest.mark.parametrize("text", ["- 1", "a: [", "1: 2"])
def test_a_settings_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"f\.yaml"):
        merge({}, file, [])


def test_only_what_was_given_is_sent_and_names_are_made() -> None:
    job = plan_run(Options(name="ppo", settings=("lr=1e-3",)))
    assert job.settings == {"lr": 0.001}
    assert job.name.startswith("ppo-")
    assert job.submission_id == job.name
    assert plan_run(Options(name="ppo")).name != job.name
    assert isinstance(job.config, PPOConfig)


def test_a_named_run_is_one_job_and_a_resumed_one_another() -> None:
    assert plan_run(Options(name="ppo", run_name="mine")).submission_id == "mine"
    resumed = plan_run(Options(name="ppo", resume="mine"))
    assert (resumed.name, resumed.resume) == ("mine", True)
    assert resumed.submission_id.startswith("mine-resumed-")


@pytest.mark.parametrize("name", ["Upper", "a/b", "", "-a", "a" * 64])
def test_a_name_that_no_path_could_bear_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="run's name"):
        plan_run(Options(name="ppo", run_name=name or "."))


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="--resume"):
        plan_run(Options(name="ppo", resume="a", run_name="b"))
    with pytest.raises(ConfigError, match="--local"):
        command.run(Options(name="ppo", local=True, stack="dev"))
    with pytest.raises(ConfigError, match="detached"):
        command.run(Options(name="ppo", local=True, detach=True))


def test_a_run_on_this_machine_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".rayrig" / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    with pytest.raises(JobError, match="a run of that name exists"):
        command.run(Options(name="ppo", local=True, run_name="mine"))
    with pytest.raises(JobError, match="no such run to resume"):
        command.run(Options(name="ppo", local=True, resume="other"))


def test_help_and_usage_errors_load_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from jobs.submit import app\n"
        "answer = CliRunner().invoke(app, ['--help'])\n"
        "assert answer.exit_code == 0 and '--inventory' in answer.output, answer.output\n"
        "heavy = {'ray', 'torch', 'boto3', 'pulumi', 'paramiko', 'pydantic', 'fsspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30, env={"COLUMNS": "200"})


def test_a_wrong_setting_is_a_usage_error_in_one_line() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "jobs.submit", "ppo", "--set", "learning_rate=1", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert answer.returncode == ExitCode.USAGE
    assert answer.stderr.startswith("error: --set: there is no setting 'learning_rate'")
    assert "Traceback" not in answer.stderr
    assert '"exit_code": 2' in answer.stdout
