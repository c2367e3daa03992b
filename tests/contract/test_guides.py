"""The guides for contributors name files that exist, and what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BELOW = ("", "daemon/trainprobe", "daemon/trainprobe/bpf", "docs", "tests", "exporters/trainprobe_exporters")
MADE = {"dist/"}  # by make
SUFFIXES = ("", ".py", ".bpf.c")
PATH = re.compile(r"`((?:[\w*-]+/)+[\w.*-]*)`")
NAMED = re.compile(r"`(\w+)`(?: and `(\w+)`)?\s+(?:of|in) `((?:[\w-]+/)+[\w.-]+)`")


def files(path: str) -> Iterator[Path]:
    for folder in BELOW:
        for suffix in SUFFIXES:
            yield from (ROOT / folder).glob(path.rstrip("/") + suffix)


def known(path: str) -> bool:
    """A file or folder, or ``module.NAME`` with that name in it."""
    module, _, name = path.rpartition(".")
    return any(files(path)) or (module != "" and holds(module, name))


def holds(path: str, name: str) -> bool:
    return any(re.search(rf"\b{name}\b", file.read_text()) for file in files(path) if file.is_file())


@pytest.mark.parametrize("guide", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_what_a_guide_names_exists(guide: str) -> None:
    text = (ROOT / guide).read_text()
    paths = PATH.findall(text)
    assert len(paths) > 30
    assert {path for path in paths if not known(path)} <= MADE
    named = [(name, path) for *names, path in NAMED.findall(text) for name in names if name]
    assert [f"{name} of {path}" for name, path in named if not holds(path, name)] == []


@pytest.mark.parametrize("page", ["accuracy", "cost"])
def test_the_readmes_have_the_figures_of_the_page_that_they_link_to(page: str) -> None:
    """In both languages the same. Those of cost stand there; of accuracy some are sums over its tables."""
    english, chinese = (figures((ROOT / readme).read_text(), page) for readme in ("README.md", "README.zh.md"))
    assert english
    assert english == chinese
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert page == "accuracy" or not {
        figure for figure in english if not re.search(rf"(?<![\d.]){re.escape(figure)}", text)
    }


def figures(readme: str, page: str) -> list[str]:
    """The different numbers of the rows of tables that link to the page."""
    rows = [line for line in readme.splitlines() if line.startswith("|") and f"](docs/{page}.md" in line]
    return sorted(set(re.findall(r"\d+(?:\.\d+)?", " ".join(rows))))
