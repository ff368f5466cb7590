import math

import pytest

from jobs.train.returns import ReturnWindow


def test_one_lucky_episode_is_not_a_return_of_500() -> None:
    """T-03: an iteration in which a single episode of 500 ended must not read as solved."""
    window = ReturnWindow()
    window.add(50.0, 99)
    window.add(500.0, 1)
    assert window.mean == pytest.approx(54.5)


def test_an_iteration_without_finished_episodes_keeps_the_last_value() -> None:
    window = ReturnWindow()
    assert window.mean is None
    window.add(20.0, 10)
    window.add(math.nan, 0)
    window.add(None, 0)
    assert window.mean == 20.0


def test_old_episodes_leave_once_newer_ones_make_100() -> None:
    window = ReturnWindow()
    window.add(0.0, 80)
    window.add(100.0, 60)
    assert window.episodes == 140
    window.add(100.0, 40)
    assert window.mean == 100.0
    assert window.episodes == 100


def test_it_survives_a_checkpoint() -> None:
    window = ReturnWindow()
    window.add(10.0, 5)
    window.add(30.0, 15)
    again = ReturnWindow.from_state(window.to_state())
    assert (again.mean, again.episodes) == (window.mean, 20)
