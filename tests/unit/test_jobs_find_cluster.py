import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from jobs_inventory import INVENTORY

from contract.errors import ConfigError, JobError
from jobs import find_cluster as module
from jobs.find_cluster import Found, find_cluster


class Pulumi:
    """A stand-in for the pulumi command: writes down how it was called and answers what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "Pulumi.yaml").write_text("name: rayrig\nruntime: python\n")
        self.environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def answers(self, *, stdout: str = "", stderr: str = "", code: int = 0, seconds: float = 0) -> None:
        program = (
            f"import sys, time\nopen({str(self.folder / 'argv')!r}, 'w').write(' '.join(sys.argv[1:]))\n"
            f"time.sleep({seconds})\nsys.stdout.write({stdout!r})\nsys.stderr.write({stderr!r})\nsys.exit({code})\n"
        )
        script = self.folder / "bin" / "pulumi"
        script.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-S", "-c", program])} "$@"\n')
        script.chmod(0o700)

    @property
    def argv(self) -> str:
        return (self.folder / "argv").read_text()

    def find(self, **options: str) -> Found:
        return find_cluster(directory=self.project, environ=self.environ, stack=options.get("stack"))


@pytest.fixture
def pulumi(tmp_path: Path) -> Pulumi:
    return Pulumi(tmp_path)


def test_the_selected_stacks_output_is_the_cluster(pulumi: Pulumi) -> None:
    pulumi.answers(stdout=json.dumps(INVENTORY))
    found = pulumi.find()
    assert found.inventory is not None
    assert found.inventory.cluster_id == "dev-abc"
    assert pulumi.argv == "stack output cluster --json --non-interactive"


def test_a_named_stack_is_asked_for(pulumi: Pulumi) -> None:
    pulumi.answers(stdout=json.dumps(INVENTORY))
    pulumi.find(stack="prod")
    assert pulumi.argv.endswith("--stack prod")
    pulumi.environ["PULUMI_STACK"] = "rehearsal"
    pulumi.find()
    assert pulumi.argv.endswith("--stack rehearsal")


def test_a_stack_without_a_cluster_names_pulumi_up(pulumi: Pulumi) -> None:
    pulumi.answers(stderr="error: current stack does not have output property 'cluster'\n", code=1)
    with pytest.raises(JobError, match="pulumi up"):
        pulumi.find()


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("error: no stack selected; please use `pulumi stack select` to choose one\n", 1),
        ("error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions\n", 3),
    ],
)
def test_no_stack_means_this_machine(pulumi: Pulumi, stderr: str, code: int) -> None:
    pulumi.answers(stderr=stderr, code=code)
    assert pulumi.find().inventory is None


def test_a_stack_that_was_named_must_exist(pulumi: Pulumi) -> None:
    pulumi.answers(stderr="error: no stack named 'prod' found\n", code=6)
    with pytest.raises(ConfigError, match="no stack named 'prod' found"):
        pulumi.find(stack="prod")


def test_any_other_failure_keeps_pulumis_words(pulumi: Pulumi) -> None:
    pulumi.answers(stderr="error: could not decrypt: incorrect passphrase\n", code=1)
    with pytest.raises(JobError, match="incorrect passphrase"):
        pulumi.find()


def test_a_silent_pulumi_is_not_waited_for_without_end(pulumi: Pulumi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PULUMI_SECONDS", 0.3)
    pulumi.answers(seconds=30)
    with pytest.raises(JobError, match="did not answer"):
        pulumi.find()


def test_no_project_or_no_pulumi_means_this_machine(pulumi: Pulumi, tmp_path: Path) -> None:
    assert "Pulumi.yaml" in find_cluster(directory=tmp_path, environ=pulumi.environ).why
    bare = find_cluster(directory=pulumi.project, environ={"PATH": str(tmp_path)})
    assert bare == Found(inventory=None, why="the pulumi command is not installed")
    with pytest.raises(ConfigError, match="cannot look up the stack 'dev'"):
        find_cluster(directory=tmp_path, environ=pulumi.environ, stack="dev")


def test_an_inventory_file_wins_over_everything(pulumi: Pulumi, tmp_path: Path) -> None:
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(INVENTORY | {"clusterId": "from-file"}))
    pulumi.answers(stdout=json.dumps(INVENTORY))
    by_option = find_cluster(inventory=file, directory=pulumi.project, environ=pulumi.environ)
    by_variable = find_cluster(directory=pulumi.project, environ=pulumi.environ | {"RAYRIG_INVENTORY": str(file)})
    for found in (by_option, by_variable):
        assert found.inventory is not None
        assert found.inventory.cluster_id == "from-file"
