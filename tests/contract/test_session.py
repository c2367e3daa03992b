"""The moving picture in the README asks nobody for anything, and stays small."""

from __future__ import annotations

import re
from pathlib import Path

SVG = Path(__file__).parents[2] / "docs" / "images" / "session.svg"


def test_it_is_small_and_needs_nothing_else() -> None:
    text = SVG.read_text()
    assert len(text) <= 300_000
    assert set(re.findall(r"(?:href|src|url)\W+(\S)", text)) <= {"#", "t"}
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text
    assert "prefers-reduced-motion" in text
