"""Commands that the documents show are there: verbs and options of the programs, targets of make, modules to run."""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainprobe.cli
import trainprobe_exporters.cli

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "systemd/slurm/*", ".ci/*")
    for path in ROOT.glob(pattern)
    if path.is_file()
)
CODE = re.compile(r"^```[^\n]*\n(.*?)^```|^ {4}([^\n]*)$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(
    r"(?<![\w/.-])(?<!--name )(?:\.venv/bin/|/usr/bin/)?(trainprobe(?:-exporter)?)((?: +[^\s|#;&>)]+)+)"
)
TARGET = re.compile(r"(?:^|[\s(])make ((?:[a-z]+ ?)+)(?=$|[\s#),])", re.MULTILINE)
MODULE = re.compile(r"python3? -m ((?:benchmarks|deb|grafana|image|tools|trainprobe\w*|tests)[\w.]*)")
MADE = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def verbs() -> dict[str, set[str]]:
    parser = trainprobe.cli.parser()
    (choice,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {verb: options(of_verb) for verb, of_verb in choice.choices.items()}


VERBS, EXPORTER = verbs(), options(trainprobe_exporters.cli.parser())


def codes(text: str, *, all_of_it: bool) -> Iterator[str]:
    """What is shown as code, without the line breaks of a command."""
    shown = [text] if all_of_it else ["".join(parts) for parts in CODE.findall(text)]
    yield from (code.replace("\\\n", " ") for code in shown)


def wrong(code: str) -> Iterator[str]:
    for program, rest in PROGRAM.findall(code):
        words = rest.partition(" -- ")[0].split()
        call = program if program.endswith("exporter") else f"{program} {words[0]}"
        known = EXPORTER if call == program else VERBS.get(words[0])
        if known is None:
            continue  # no call: its name in a sentence, an image, a unit
        found = (word.strip("[]\"',.").partition("=")[0] for word in words if re.match(r"\[?-", word))
        yield from (f"{call} {option}" for option in found if option not in known and option != "--")
    for targets in TARGET.findall(code):
        if code.lstrip().startswith(f"make {targets.split()[0]}"):
            yield from (f"make {target}" for target in targets.split()[:1] if target not in MADE)
    for module in MODULE.findall(code):
        if importlib.util.find_spec(module) is None:
            yield f"python -m {module}"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_text_shows_can_be_called(path: Path) -> None:
    text = path.read_text()
    found = [one for code in codes(text, all_of_it=path.suffix != ".md") for one in wrong(code)]
    assert found == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("trainprobe report --since 2h --fromat json", ["trainprobe report --fromat"]),
        ("sudo .venv/bin/trainprobe run -o a.json -- python --workers 3 train.py", []),
        ("trainprobe-exporter --listne :1", ["trainprobe-exporter --listne"]),
        ("make dmeo", ["make dmeo"]),
        ("python -m benchmarks.stals --runs 5", ["python -m benchmarks.stals"]),
        ("systemctl restart trainprobe", []),
    ],
)
def test_it_sees_what_there_is_not(code: str, found: list[str]) -> None:
    assert list(wrong(code)) == found
