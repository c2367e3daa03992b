"""The page of the errors has each text that the programs say when something does not work, with what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import errors
from trainprobe.causes.registry import DECLARED
from trainprobe.cli import checks, main

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_sources_say() -> None:
    assert (DOCS / "errors.md").read_text() == errors.page(), "make generated"


def test_what_a_person_is_likely_to_meet_is_on_it_with_its_remedy() -> None:
    found = {error.text: error.remedy for error in errors.errors()}
    assert found["no daemon publishes here"] == "systemctl start trainprobe, or: trainprobe run -- COMMAND"
    assert found["py-spy is not installed: no Python stacks"]
    assert found["this Python has no bcc module"].startswith(checks.APT_BCC)
    assert len(found) > 40


def test_an_error_of_the_terminal_is_found_on_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = (DOCS / "errors.md").read_text()
    assert main(["report", "--input", str(tmp_path / "none.json"), "--merge", "x"]) == 2
    said = capsys.readouterr().err.removeprefix("trainprobe: ").strip()
    assert f"- `{said}`" in page


def test_the_chinese_pages_have_each_cause_and_the_words_of_users() -> None:
    causes = (DOCS / "causes.zh.md").read_text()
    assert [key for key in DECLARED if f"[`{key}`](causes/{key}.md)" not in causes] == []
    faq = (DOCS / "faq.zh.md").read_text()
    for words in ("一顿一顿", "GPU利用率低", "爆内存", "Too many open files", "received 0 items of ancdata"):
        assert words in faq


def test_no_cell_of_the_chinese_table_is_empty_or_refers_to_a_neighbour() -> None:
    rows = [line for line in (DOCS / "causes.zh.md").read_text().splitlines() if line.startswith("| [`")]
    cells = {row: [cell.strip() for cell in row.strip("|").split("|")] for row in rows}
    assert [row for row, row_cells in cells.items() if len(row_cells) != 4 or "" in row_cells or "同上" in row] == []
