"""The reference pages are what the models say today."""

import pytest

from cli.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `python -m cli.reference`"
