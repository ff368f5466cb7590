import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.world.board import Board
from rehearsal.world.places import places


@pytest.fixture
def hook() -> Iterator[None]:
    before = threading.excepthook
    yield
    threading.excepthook = before


@pytest.mark.usefixtures("hook")
def test_a_part_that_crashes_is_shown_and_stays_shown(tmp_path: Path):
    place = places(tmp_path)
    board = Board(place)
    board.catch_crashes()

    def crash() -> None:
        raise ZeroDivisionError("a bug")

    thread = threading.Thread(target=crash, name="reconciler")
    thread.start()
    thread.join(timeout=10)
    board.watch(nodes=lambda: {"i-1": "up"}, problems=lambda: {"i-2": "cannot create"})
    assert json.loads(place.status.read_text()) == {
        "nodes": {"i-1": "up"},
        "problems": {"i-2": "cannot create", "reconciler": "crashed: ZeroDivisionError: a bug"},
    }
