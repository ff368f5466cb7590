"""The language host under the real Pulumi CLI: small programs, a file:// state, no cloud."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

PROJECT = """
name: small
runtime:
  name: python
  options:
    toolchain: pip
    virtualenv: .venv
main: program
"""
PROGRAM = """
import os, pathlib, sys, time
import pulumi

config = pulumi.Config()
pulumi.ComponentResource("small:index:Thing", "thing")
pulumi.export("word", config.require("word"))
pulumi.export("hidden", config.require_secret("hidden"))
pulumi.export("preview", pulumi.runtime.is_dry_run())
pulumi.export("prefix", sys.prefix)
pulumi.export("organization", pulumi.get_organization())
pulumi.export("stack", pulumi.get_stack())
if config.get("raise"):
    raise ValueError(config.require("raise"))
if config.get("run_error"):
    raise pulumi.RunError(config.require("run_error"))
if config.get("exit"):
    sys.exit(config.require_int("exit"))
if config.get("hang"):
    pathlib.Path(config.require("hang")).write_text(str(os.getpid()))
    time.sleep(300)
"""


@dataclass
class Project:
    folder: Path
    env: dict[str, str]

    def argv(self, *arguments: str) -> list[str]:
        return ["pulumi", *arguments, "--non-interactive"]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*arguments),
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )

    def done(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.returncode == 0, result.stdout
        return result.stdout

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.argv(*arguments),
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def project(tmp_path: Path, pulumi_folder: Path) -> Project:
    folder = tmp_path / "project"
    (folder / "program").mkdir(parents=True)
    (tmp_path / "state").mkdir()
    (folder / "Pulumi.yaml").write_text(PROJECT)
    (folder / "program" / "__main__.py").write_text(PROGRAM)
    (folder / ".venv").symlink_to(sys.prefix)
    env = dict(os.environ) | {
        "PATH": os.pathsep.join([str(pulumi_folder), os.environ["PATH"]]),
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_BACKEND_URL": f"file://{tmp_path / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }
    made = Project(folder, env)
    made.done("stack", "init", "test")
    made.done("config", "set", "word", "hello")
    made.done("config", "set", "--secret", "hidden", "s3cret-value")
    return made


def until(condition: Callable[[], object], *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def hanging_program(process: "subprocess.Popen[str]", mark: Path) -> psutil.Process:
    until(lambda: mark.exists() and mark.read_text(), seconds=60, what="the program runs")
    assert process.poll() is None
    return psutil.Process(int(mark.read_text()))


def test_the_three_verbs_run_a_python_program(project: Project) -> None:
    assert "2 to create" in project.done("preview")
    up = project.done("up", "--yes")
    assert "2 created" in up
    assert "s3cret-value" not in up
    assert "warning" not in up
    outputs = json.loads(project.done("stack", "output", "--json", "--show-secrets"))
    assert outputs == {
        "word": "hello",
        "hidden": "s3cret-value",
        "preview": False,
        "prefix": str(project.folder / ".venv"),
        "organization": "organization",
        "stack": "test",
    }
    assert "2 unchanged" in project.done("up", "--yes", "--skip-preview")
    assert "2 deleted" in project.done("destroy", "--yes", "--skip-preview")


def test_an_exception_of_the_program_is_shown_without_the_host(project: Project) -> None:
    project.done("config", "set", "raise", "the-reason")
    result = project.run("up", "--yes", "--skip-preview")
    assert result.returncode != 0
    assert "ValueError: the-reason" in result.stdout
    assert result.stdout.count("Traceback") == 1
    assert "language_host" not in result.stdout
    assert "exited with" not in result.stdout


def test_a_run_error_is_shown_as_one_line(project: Project) -> None:
    project.done("config", "set", "run_error", "accessCidr is missing")
    result = project.run("preview")
    assert result.returncode != 0
    assert "accessCidr is missing" in result.stdout
    assert "Traceback" not in result.stdout


def test_a_silent_exit_names_its_code(project: Project) -> None:
    project.done("config", "set", "exit", "3")
    result = project.run("up", "--yes", "--skip-preview")
    assert result.returncode != 0
    assert "the program exited with code 3" in result.stdout
    assert "Traceback" not in result.stdout


def test_a_missing_virtualenv_says_what_to_do(project: Project) -> None:
    (project.folder / "Pulumi.yaml").write_text(PROJECT.replace("virtualenv: .venv", "virtualenv: elsewhere"))
    result = project.run("preview")
    assert result.returncode != 0
    assert "elsewhere named in Pulumi.yaml is not there: run `make setup`" in result.stdout
    assert "Traceback" not in result.stdout


def test_ctrl_c_is_clean(project: Project, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    project.done("config", "set", "hang", str(mark))
    process = project.start("up", "--yes", "--skip-preview")
    program = hanging_program(process, mark)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "update canceled" in output
    assert "Traceback" not in output
    assert "KeyboardInterrupt" not in output
    until(lambda: is_gone(program.pid), seconds=10, what="the program is gone")
    project.done("config", "rm", "hang")
    project.done("up", "--yes", "--skip-preview")


def test_a_killed_engine_leaves_no_process(project: Project, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    project.done("config", "set", "hang", str(mark))
    process = project.start("up", "--yes", "--skip-preview")
    program = hanging_program(process, mark)
    host = program.parent()
    assert host is not None
    assert any("language_host.py" in part for part in host.cmdline())
    process.kill()
    process.communicate(timeout=60)
    until(lambda: is_gone(host.pid) and is_gone(program.pid), seconds=20, what="host and program are gone")


def test_about_names_the_programs_python_and_packages(project: Project) -> None:
    about = json.loads(project.done("about", "--json"))
    assert about["runtime"]["version"] == ".".join(str(part) for part in sys.version_info[:3])
    assert "rayrig" in {dependency["name"] for dependency in about["dependencies"]}
