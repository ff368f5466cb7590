"""The images' cache: where it lies, what its keys follow, one builder at a time, clones of a Docker root."""

import multiprocessing
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from contract.errors import RayrigError
from rehearsal.images import cache
from rehearsal.images.build import _plan


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_cache_follows_xdg_and_ignores_a_relative_one(
    cache_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.cache_dir() == cache_home / "rayrig"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_dir() == tmp_path / ".cache/rayrig"


def test_nodes_lie_beside_the_prepared_root_so_that_hard_links_work() -> None:
    assert cache.nodes_dir("w1").parent.parent == _plan().docker_root.parent


def test_key_follows_names_and_contents_but_not_order() -> None:
    parts = [("a", b"1"), ("b", b"2")]
    key = cache.content_key(parts)
    assert cache.KEY_PATTERN.fullmatch(key)
    assert cache.content_key(reversed(parts)) == key
    assert len({key, cache.content_key([("a", b"1"), ("b", b"3")]), cache.content_key([("a", b"1"), ("c", b"2")])}) == 3
    assert cache.content_key([("a", b"12")]) != cache.content_key([("a1", b"2")])


def test_tree_parts_see_the_executable_bit_and_no_bytecode(tmp_path: Path) -> None:
    (tmp_path / "tree/__pycache__").mkdir(parents=True)
    (tmp_path / "tree/__pycache__/x.pyc").write_bytes(b"x")
    script = tmp_path / "tree/script"
    script.write_text("echo")
    script.chmod(0o644)
    before = list(cache.tree_parts(tmp_path / "tree"))
    script.chmod(0o755)
    assert before == [("script -", b"echo")]
    assert list(cache.tree_parts(tmp_path / "tree")) == [("script x", b"echo")]


def _hold(held: Event, release: Event) -> None:
    with cache.exclusive("images", say=print):
        held.set()
        release.wait(20)


def test_second_process_waits_and_says_so() -> None:
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(held, release))
    other.start()
    try:
        assert held.wait(20)
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            release.set()

        with cache.exclusive("images", say=say):
            assert len(said) == 1
            assert "waiting for another process" in said[0]
    finally:
        release.set()
        other.join(20)
    assert other.exitcode == 0


def test_lock_names_how_to_find_the_holder_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LOCK_DEADLINE_SECONDS", 0.3)
    start = time.monotonic()
    with (
        cache.exclusive("images", say=print),
        pytest.raises(RayrigError, match="fuser"),
        cache.exclusive("images", say=lambda _line: None),
    ):
        raise AssertionError("not reached")
    assert time.monotonic() - start < 5
