"""Proof that this machine's Python, torch, Ray and GPUs work: `python -m images.verify [--json] [--gpus N]`.

Run in the image when it is built, on every node before it counts as ready, and by a person. Top-level imports are
the standard library only; torch and Ray are imported by the checks that need them.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from contract.exit_codes import ExitCode

MATRIX_SIZE = 1000
PACKAGES = ("ray", "torch", "gymnasium", "numpy", "pydantic", "fsspec", "s3fs")
"""What the code on a cluster imports; their versions are recorded."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Ray's object store lives
NVIDIA_SMI_SECONDS = 20.0
"""A healthy driver answers within a few seconds, a wedged one never does."""


class CheckFailedError(Exception):
    """A check found something wrong; its text is the check's detail."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding: `detail` says what was seen, or what is wrong."""

    name: str
    ok: bool
    detail: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Everything found; `ok` when every check is."""

    versions: dict[str, str]
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)


def _run(name: str, probe: Callable[[], str]) -> Check:
    started = time.monotonic()
    try:
        ok, detail = True, probe()
    except CheckFailedError as error:
        ok, detail = False, str(error)
    except (ImportError, RuntimeError, OSError, ValueError, AttributeError, subprocess.SubprocessError) as error:
        ok, detail = False, f"{type(error).__name__}: {error}"
    return Check(name=name, ok=ok, detail=detail, seconds=round(time.monotonic() - started, 3))


def driver_version() -> str | None:
    """The NVIDIA driver's version; None where there is no driver or it does not answer within 20 s."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(answer.stdout.split()), None)


def versions() -> dict[str, str]:
    """Versions of Python, the packages and, where there are any, CUDA, cuDNN, NCCL and the driver."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    try:
        import torch  # noqa: PLC0415 - costs about 2 s
    except ImportError:
        return {name: version for name, version in found.items() if version}
    # A distribution's torch may carry no package metadata.
    found["torch"] = str(torch.__version__)
    found["cuda"] = torch.version.cuda
    if torch.cuda.is_available():
        cudnn = torch.backends.cudnn.version()
        found["cudnn"] = str(cudnn) if cudnn else None
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["driver"] = driver_version()
    return {name: version for name, version in found.items() if version}


def _import(module: str) -> Callable[[], str]:
    def probe() -> str:
        loaded = importlib.import_module(module)
        return f"version {getattr(loaded, '__version__', 'unknown')}"

    return probe


def _gpus(expected: int | None) -> str:
    import torch  # noqa: PLC0415 - costs about 2 s

    count = torch.cuda.device_count()
    names = [torch.cuda.get_device_name(index) for index in range(count)]
    seen = f"{count} GPU{'' if count == 1 else 's'}" + (f" ({', '.join(names)})" if names else "")
    if expected is not None and count != expected:
        raise CheckFailedError(f"{seen} found, {expected} expected; driver {driver_version() or 'does not answer'}")
    return seen


def _matmul(device: str) -> Callable[[], str]:
    def probe() -> str:
        import torch  # noqa: PLC0415 - costs about 2 s

        generator = torch.Generator().manual_seed(0)
        shape = (MATRIX_SIZE, MATRIX_SIZE)
        # Small integers: every product and sum is exact in float32 and in TF32, so the comparison is exact too.
        a, b = (torch.randint(0, 4, shape, generator=generator).float() for _ in range(2))
        product = (a.to(device) @ b.to(device)).cpu().double()
        probe_vector = torch.randint(1, 8, (MATRIX_SIZE,), generator=generator).double()
        if not torch.equal(product @ probe_vector, a.double() @ (b.double() @ probe_vector)):
            raise CheckFailedError(f"a {MATRIX_SIZE}x{MATRIX_SIZE} product on {device} is wrong")
        return f"{MATRIX_SIZE}x{MATRIX_SIZE} product is exact"

    return probe


def _gpu_indices() -> Sequence[int]:
    try:
        import torch  # noqa: PLC0415 - costs about 2 s
    except ImportError:
        return ()
    return range(torch.cuda.device_count())


def _shared_memory(minimum_bytes: int) -> str:
    size = shutil.disk_usage(SHARED_MEMORY).total
    seen = f"{SHARED_MEMORY} has {size / 2**20:.0f} MiB"
    if size < minimum_bytes:
        raise CheckFailedError(f"{seen}, {minimum_bytes / 2**20:.0f} MiB needed: pass --shm-size to the container")
    return seen


def _environment_step() -> str:
    import gymnasium  # noqa: PLC0415 - pulls numpy

    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=0)
    _, reward, *_ = environment.step(0)
    environment.close()
    if observation.shape != (4,) or reward != 1.0:
        raise CheckFailedError(f"CartPole-v1 answered observation {observation.shape} and reward {reward}")
    return f"CartPole-v1 steps, gymnasium {gymnasium.__version__}"


def _writable(directory: Path) -> Callable[[], str]:
    def probe() -> str:
        text = f"rayrig {os.getpid()}"
        with tempfile.NamedTemporaryFile("w+", dir=directory, encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            if Path(file.name).read_text(encoding="utf-8") != text:
                raise CheckFailedError(f"{directory} does not give back what was written")
        return f"{directory} takes files"

    return probe


def verify(
    *, gpus: int | None = None, shm_bytes: int = 0, writable: Sequence[Path] = (), full: bool = False
) -> Verification:
    """Runs every check; never raises for what a check finds.

    Args:
        gpus: how many GPUs must be seen; None only reports them.
        shm_bytes: least size of /dev/shm.
        writable: directories that must take files.
        full: also imports RLlib, several seconds on a small machine.
    """
    plan: list[tuple[str, Callable[[], str]]] = [
        ("torch", _import("torch")),
        ("ray", _import("ray")),
        ("gpus", lambda: _gpus(gpus)),
        ("matmul cpu", _matmul("cpu")),
        *((f"matmul gpu {index}", _matmul(f"cuda:{index}")) for index in _gpu_indices()),
        ("shared memory", lambda: _shared_memory(shm_bytes)),
        ("environment", _environment_step),
        *((f"writable {directory}", _writable(directory)) for directory in writable),
    ]
    if full:
        plan.append(("rllib", _import("ray.rllib.algorithms.ppo")))
    return Verification(versions=versions(), checks=tuple(_run(name, probe) for name, probe in plan))


def as_json(result: Verification) -> str:
    """One line of JSON: `{"ok", "versions", "checks": [{"name", "ok", "detail", "seconds"}]}`."""
    return json.dumps({"ok": result.ok, "versions": result.versions, "checks": [asdict(c) for c in result.checks]})


def as_table(result: Verification) -> str:
    """The same for a person."""
    width = max(len(check.name) for check in result.checks)
    lines = [f"{'ok  ' if c.ok else 'FAIL'}  {c.name:<{width}}  {c.seconds:6.2f} s  {c.detail}" for c in result.checks]
    lines.append("versions: " + ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items())))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m images.verify", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    parser.add_argument("--gpus", type=int, metavar="N", help="fail unless exactly N GPUs are seen")
    parser.add_argument("--shm-bytes", type=int, default=0, metavar="N", help="fail if /dev/shm is smaller")
    parser.add_argument("--writable", type=Path, action="append", default=[], metavar="DIR", help="must take files")
    parser.add_argument("--full", action="store_true", help="also import RLlib (seconds)")
    given = parser.parse_args(argv)
    result = verify(gpus=given.gpus, shm_bytes=given.shm_bytes, writable=given.writable, full=given.full)
    sys.stdout.write((as_json(result) if given.json else as_table(result)) + "\n")
    return ExitCode.SUCCESS if result.ok else ExitCode.FAILURE


if __name__ == "__main__":
    sys.exit(main())
