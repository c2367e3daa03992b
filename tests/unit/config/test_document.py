"""The page of all keys is the schema's own words."""

from __future__ import annotations

from pathlib import Path

from trainprobe.config.document import markdown

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_in_docs_is_the_generated_one() -> None:
    assert PAGE.read_text() == markdown(), (
        "docs/configuration.md is old: .venv/bin/python -m trainprobe.config.document > docs/configuration.md"
    )


def test_every_key_stands_there_with_type_default_and_meaning() -> None:
    rows = [line.strip("|").split(" | ") for line in markdown().splitlines() if line.startswith("| `")]
    assert len(rows) > 20
    for row in rows:
        assert len(row) == 4
        assert all(cell.strip() for cell in row), row
