"""docs/causes: a page for each cause, and no report in it that trainprobe would not print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.replay.cause_pages import ROOT, pages, renewed
from trainprobe.model.cause import Cause

CAUSES = ROOT / "docs" / "causes"
LINK = re.compile(r"\]\(([^)#\s]+\.md)\)")
TITLES = ("## What you see", "## How it is found", "## What it is not", "## What to do")


@pytest.mark.parametrize("cause", [cause.value for cause in Cause])
def test_each_cause_has_a_page(cause: str) -> None:
    text = (CAUSES / f"{cause}.md").read_text()
    assert text.startswith(f"# `{cause}`: ")
    assert [title for title in TITLES if title not in text] == []
    assert f"[`{cause}`]({cause}.md)" in (CAUSES / "index.md").read_text()


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_reports_in_the_docs_are_those_of_the_recordings(page: Path) -> None:
    assert page.read_text() == renewed(page), "python -m tests.replay.cause_pages writes them anew"


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [*(ROOT / "docs").glob("*.md"), *CAUSES.glob("*.md")]
        for target in LINK.findall(page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken
