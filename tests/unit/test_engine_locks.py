"""The lock files that set-up installs from: complete, hashed, and nested in one another."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ]+)")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> set[tuple[str, str]]:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    return {(plain(match[1]), match[2]) for line in text.splitlines() if (match := PIN.match(line))}


@pytest.mark.parametrize(("inner", "outer"), [("base", "dev"), ("dev", "all")])
def test_a_larger_lock_holds_the_smaller_one_at_the_same_versions(inner: str, outer: str) -> None:
    assert pins(inner) <= pins(outer)


@pytest.mark.parametrize("name", ["base", "dev", "all"])
def test_every_pin_has_a_hash_and_no_address(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.lock").read_text()
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text.strip())
    assert len(blocks) == len(pins(name))
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text


def test_the_locks_hold_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        return {plain(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]) for requirement in requirements}

    def locked(name: str) -> set[str]:
        return {package for package, _version in pins(name)}

    assert names(project["dependencies"]) <= locked("base")
    assert names(project["dependencies"] + extras["dev"]) <= locked("dev")
    assert names(project["dependencies"] + extras["dev"] + extras["train"]) <= locked("all")
    assert {"uv", "setuptools"} <= locked("dev"), "setup.sh installs by them"
