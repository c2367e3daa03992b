"""One Chromium for all browser tests, a fresh tab for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium, Tab, chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    folder: Path = tmp_path_factory.mktemp("chromium")
    (folder / "profile").mkdir()
    with chromium(folder / "profile") as running:
        yield running


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Tab]:
    """A page that has not complained when the test is over, but about what the test took away."""
    with browser.tab() as made:
        yield made
        assert made.complaints() == []
