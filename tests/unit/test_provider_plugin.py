"""The executable that the engine starts: what it says without a virtual environment, and how it ends."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "provider" / "plugin" / "pulumi-resource-rayrig"
DOUBLE = SCRIPT.parents[2] / "rehearsal" / "bin" / "pulumi-resource-aws"
START_SECONDS = 60
END_SECONDS = 20


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The plugin as the engine starts it: in some folder, its port on the first line."""
    (tmp_path / "contract.py").write_text("raise RuntimeError('the wrong contract')\n")
    process = subprocess.Popen(
        [str(SCRIPT), "127.0.0.1:1"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert int(process.stdout.readline())
        yield process
    finally:
        process.kill()
        process.communicate(timeout=END_SECONDS)


def test_without_a_virtual_environment_it_says_what_to_do(tmp_path: Path) -> None:
    copy = tmp_path / "provider" / "plugin" / SCRIPT.name
    copy.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, copy)
    done = subprocess.run([str(copy)], capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"virtual environment is missing ({tmp_path}/.venv)" in done.stderr
    assert "make setup" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_and_quietly(plugin: subprocess.Popen[str], number: signal.Signals) -> None:
    plugin.send_signal(number)
    out, err = plugin.communicate(timeout=END_SECONDS)
    assert (plugin.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("script", [SCRIPT, DOUBLE], ids=["rayrig", "aws double"])
def test_it_ends_with_an_engine_that_was_killed(script: Path, tmp_path: Path) -> None:
    engine = (
        "import subprocess, sys\n"
        f"p = subprocess.Popen([{str(script)!r}, '127.0.0.1:1'], stdout=subprocess.PIPE, start_new_session=True)\n"
        "p.stdout.readline()\n"
        "print(p.pid, flush=True)\n"
        "p.wait()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", engine], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    plugin = psutil.Process(int(process.stdout.readline()))
    process.kill()
    process.communicate(timeout=END_SECONDS)
    try:
        deadline = time.monotonic() + END_SECONDS
        while runs(plugin):
            assert time.monotonic() < deadline, "the plugin outlived its engine"
            psutil.wait_procs([plugin], timeout=0.1)
    finally:
        if runs(plugin):
            plugin.kill()


def runs(process: psutil.Process) -> bool:
    """Whether it still runs; one that ended and that nobody has asked for yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
