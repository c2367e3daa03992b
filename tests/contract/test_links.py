"""Links between the documents lead somewhere: to a file of the tree, and to a heading that is there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for pattern in ("*.md", "docs/**/*.md") for path in ROOT.glob(pattern))
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Without what is shown as code."""
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them: a heading that comes again is numbered."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    made = set()
    for heading in re.findall(r"^#{1,6} +(.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        made.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return made


def dead(page: Path) -> Iterator[str]:
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists() or (anchor and goal.suffix == ".md" and anchor not in anchors(goal)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(dead(page)) == []


def test_it_sees_a_dead_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `thing`, twice\n## Same\n## Same\n```\n# no heading\n```\n"
        "[a](page.md) [b](#one-thing-twice) [c](page.md#same-1) [d](https://example.org/x) `[e](code.md)`\n"
        "[f](gone.md) [g](#no-heading) [h](page.md#same-2)\n"
    )
    assert list(dead(page)) == ["gone.md", "#no-heading", "page.md#same-2"]
