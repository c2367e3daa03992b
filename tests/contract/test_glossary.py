"""docs/glossary.md names, for each term, a file that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (.+) \| .+ \| `(.+)` \|$", re.MULTILINE)


def test_each_term_has_a_file_and_one_line() -> None:
    rows = ROW.findall((ROOT / "docs" / "glossary.md").read_text())
    assert len(rows) > 50
    assert [term for term, _ in rows] == list(dict(rows))
    assert [f"{term}: {file}" for term, file in rows if not (ROOT / "daemon/trainprobe" / file).is_file()] == []
