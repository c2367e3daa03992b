"""The real reports in the READMEs and docs: what a recording gives when it is replayed.

``python -m tests.replay.cause_pages`` writes them anew, where a page asks for some by
``<!-- replay NAME: part, part -->`` with a fence below it. A part is ``head``, ``verdict`` (the head up
to the run's figures), a title of the report, or ``advise``: what that program says; Chinese in ``.zh.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timezone
from functools import cache
from pathlib import Path

from tests.replay.replay import FOLDER, replay_named
from trainprobe.advise.settings import advice
from trainprobe.cli import advise
from trainprobe.cli.choosing import Chosen
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.model.report import Report
from trainprobe.text.catalogue import LANGUAGES
from trainprobe.text.render import Speaker

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
STYLES = {language: Style(zone=timezone.utc, speaker=Speaker(language)) for language in LANGUAGES}
FIGURES = re.compile(r"\n(?=\d+ steps · )")
ASKED = re.compile(r"<!-- replay (\w+): ([^\n]*?) -->\n```\n(.*?)```\n", re.DOTALL)


@cache
def replayed(name: str) -> Report:
    """The report of the training that was recorded."""
    known = json.loads((FOLDER / "truth.json").read_text()).get(name)
    report = replay_named(name)
    (run,) = (run for run in report.runs if not known or any(rank.pid == known["pid"] for rank in run.ranks))
    ranks = [rank for rank in run.ranks if rank.verdict.cause == name] or run.ranks  # the page is about that cause
    return replace(report, runs=[replace(run, ranks=ranks)])


def shown(name: str, part: str, style: Style = STYLES["en"]) -> str:
    """A part of what a person reads of a recording."""
    report = replayed(name)
    if part == "advise":
        run = report.runs[0]
        made = advice(run, run.ranks[0], report.host.cpus)
        return "\n".join(advise.advice_lines(Chosen(run, run.ranks[0], report.host.cpus), made, style))
    head, *blocks = text_of(report, style).split("\n\n")
    if part == "verdict":
        return FIGURES.split(head)[0]
    titled = {block.partition("\n")[0]: block for block in blocks}
    return head if part == "head" else titled[part]


def renewed(page: Path) -> str:
    """The page with its reports as they are now."""
    style = STYLES["zh" if page.name.endswith(".zh.md") else "en"]

    def anew(found: re.Match[str]) -> str:
        parts = "\n\n".join(shown(found[1], part, style) for part in found[2].split(", "))
        return f"<!-- replay {found[1]}: {found[2]} -->\n```\n{parts}\n```\n"

    return ASKED.sub(anew, page.read_text())


def pages() -> Iterator[Path]:
    """Pages that show a report."""
    return (page for page in PAGES if ASKED.search(page.read_text()))


if __name__ == "__main__":
    for page in pages():
        page.write_text(renewed(page))
