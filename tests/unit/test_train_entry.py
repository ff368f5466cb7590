import subprocess
import sys

import pytest

from contract.exit_codes import ExitCode
from jobs.train import ppo


def test_a_bad_setting_ends_before_anything_heavy_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert ppo.main(["--run-uri", "file:///nowhere", "--config", '{"lrr": 1}']) == ExitCode.USAGE
    assert "did you mean 'lr'?" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]"])
def test_settings_that_are_no_json_object_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ppo.main(["--run-uri", "file:///nowhere", "--config", text]) == ExitCode.USAGE
    assert "--config" in capsys.readouterr().err


def test_the_entry_itself_is_light() -> None:
    """Thread settings must be in place before torch is loaded."""
    code = "import sys, jobs.train.ppo; sys.exit(any(m in sys.modules for m in ('torch', 'ray', 'gymnasium')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
