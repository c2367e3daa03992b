from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.collect.fake_proc import FakeProc


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)
