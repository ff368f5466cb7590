"""Building as root: what runs inside a new root leaves no mount, file or process, however the build ends."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from contract.errors import RayrigError
from rehearsal.images.rootfs import _APART, Builder, prepare_host, run_inside

MARK = "31.4159"


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(say=print, log=tmp_path / "log", mirror=None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root of one statically linked shell, so that no Debian has to be made for these tests."""
    root = tmp_path / "root"
    for folder in ("bin", "dev", "etc", "proc", "run"):
        (root / folder).mkdir(parents=True)
    for line in subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout.splitlines():
        for word in line.split():
            if word.startswith("/"):
                target = root / word.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(Path(word).read_bytes())
                target.chmod(0o755)
    (root / "bin/sh").write_bytes(Path("/bin/sh").read_bytes())
    (root / "bin/sh").chmod(0o755)
    return root


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def test_script_sees_proc_dev_and_what_is_bound_and_leaves_only_what_it_made(
    builder: Builder, root: Path, tmp_path: Path
) -> None:
    certificate = tmp_path / "ca.crt"
    certificate.write_text("certificate\n")
    before = files(root) | {"etc/hosts", "etc/resolv.conf", "made", "run/rayrig-host"}
    script = (
        'read -r line <$PIP_CERT; echo "$line $WORD" >/made; : </proc/self/stat; : >/dev/null; '
        "(: >$PIP_CERT) 2>/dev/null && exit 9; true"
    )
    run_inside(builder, root, script, label="try", environment={"PIP_CERT": str(certificate), "WORD": "two words"})
    assert (root / "made").read_text() == "certificate two words\n"
    assert files(root) <= before
    assert not (root / "run/rayrig-host").exists()
    assert certificate.read_text() == "certificate\n"
    assert str(root) not in Path("/proc/mounts").read_text()


def test_failing_script_is_an_error_with_its_last_words(builder: Builder, root: Path) -> None:
    with pytest.raises(RayrigError, match="the cause"):
        run_inside(builder, root, "echo the cause; exit 3", label="try")
    assert str(root) not in Path("/proc/mounts").read_text()


def sleepers(seconds: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", seconds]]


def gone(seconds: str) -> bool:
    deadline = time.monotonic() + 10
    while sleepers(seconds) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not sleepers(seconds)


def test_build_that_is_killed_takes_all_that_it_started_along(tmp_path: Path) -> None:
    seconds = f"{MARK}{os.getpid()}"
    code = (
        "import sys, threading; from pathlib import Path; from rehearsal.images.commands import run_with_progress\n"
        "run_with_progress(sys.argv[2:], label='x', say=print, log=Path(sys.argv[1]), timeout_seconds=60,"
        " stop=threading.Event())"
    )
    script = f"sleep {seconds} & setsid sleep {seconds} & wait"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "log"), *_APART, "sh", "-c", script])
    deadline = time.monotonic() + 20
    while len(sleepers(seconds)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait(10)
    assert gone(seconds)


def test_stopped_build_ends_all_that_it_started(builder: Builder, root: Path) -> None:
    timer = threading.Timer(1.0, builder.stop.set)
    timer.start()
    start = time.monotonic()
    with pytest.raises(RayrigError, match="stopped"):
        run_inside(builder, root, "while :; do :; done", label="try")
    assert time.monotonic() - start < 15
    assert str(root) not in Path("/proc/mounts").read_text()


def test_this_host_can_build(tmp_path: Path) -> None:
    assert prepare_host(say=print, log=tmp_path / "log").stop.is_set() is False
