"""Hours of trouble: neither program grows, and what is lost is told. ``TRAINPROBE_SOAK_HOURS`` sets how many (2)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.soak import run

HOURS = float(os.environ.get("TRAINPROBE_SOAK_HOURS", "2"))


@pytest.mark.timeout(HOURS * 3600 * 2 + 600)
def test_neither_program_grows_and_nothing_is_lost_in_silence(torch_python: str, tmp_path: Path) -> None:
    assert run.main(["--hours", str(HOURS), "--python", torch_python, "--output", str(tmp_path / "soak.json")]) == 0
