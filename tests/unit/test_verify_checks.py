import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from contract.exit_codes import ExitCode
from images import verify as verify_module
from images.verify import Check, Verification, as_json, as_table, main, verify


def _check(result: Verification, name: str) -> Check:
    return next(check for check in result.checks if check.name == name)


def test_a_healthy_machine_passes_and_its_versions_are_recorded(tmp_path: Path) -> None:
    result = verify(writable=[tmp_path])
    assert result.ok, as_table(result)
    assert result.versions["torch"] == str(torch.__version__)
    assert result.versions["ray"] == "2.60.0"
    assert _check(result, "matmul cpu").detail == "1000x1000 product is exact"
    assert list(tmp_path.iterdir()) == []


def test_missing_gpus_fail_and_say_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = torch.cuda.device_count() + 1
    assert main(["--json", "--gpus", str(wrong)]) == ExitCode.FAILURE
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    (failed,) = [check for check in answer["checks"] if not check["ok"]]
    assert failed["name"] == "gpus"
    assert f"{wrong} expected" in failed["detail"]


def test_a_wrong_product_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.Tensor.__matmul__

    def off_by_one_element(left: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        product = right(left, other)
        if product.shape == (verify_module.MATRIX_SIZE, verify_module.MATRIX_SIZE):
            product[17, 3] += 1
        return product

    monkeypatch.setattr(torch.Tensor, "__matmul__", off_by_one_element)
    check = _check(verify(), "matmul cpu")
    assert not check.ok
    assert "is wrong" in check.detail


def test_small_shared_memory_and_a_missing_directory_are_named(tmp_path: Path) -> None:
    result = verify(shm_bytes=2**60, writable=[tmp_path / "absent"])
    assert "--shm-size" in _check(result, "shared memory").detail
    assert "FileNotFoundError" in _check(result, f"writable {tmp_path / 'absent'}").detail
    assert json.loads(as_json(result))["ok"] is False
    assert "FAIL" in as_table(result)


def test_importing_images_loads_nothing_heavy() -> None:
    code = "import sys, images.verify; sys.exit(any(m in sys.modules for m in ('torch', 'ray', 'numpy', 'gymnasium')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=20).returncode == 0
