"""What is declared of causes, and that what is made from it stands in the tree as it is now."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import generate
from trainprobe.causes import registry
from trainprobe.causes.base import Claim, Window
from trainprobe.causes.registry import DECLARED, SPECS
from trainprobe.model.cause import Cause, Kind

ANEW = "make generated"
OF_A_PAGE = {
    "event": "event (explains an end)",
    "phase": "phase (not lost time)",
    "warning": "warning (nothing lost yet)",
}


def test_the_enumeration_has_what_is_declared() -> None:
    assert list(SPECS) == list(Cause), ANEW
    assert {cause.value for cause in Cause} == DECLARED.keys(), ANEW


@pytest.mark.parametrize("path", generate.REGIONS)
def test_what_is_generated_is_what_the_specs_say(path: str) -> None:
    assert (generate.ROOT / path).read_text() == generate.region(path), ANEW


def test_the_pinned_keys_have_what_is_new() -> None:
    assert generate.KINDS_FILE.read_text() == generate.pinned(), ANEW


@pytest.mark.parametrize("spec", DECLARED.values(), ids=DECLARED.keys())
def test_a_page_says_where_its_cause_may_appear(spec: generate.CauseSpec) -> None:
    text = (generate.ROOT / "docs" / spec.page).read_text()
    assert text.startswith(f"# `{spec.key}`: ")
    found = re.search(r"^Kind: (.*)\.$", text, re.MULTILINE)
    assert found is not None
    assert found[1] == ", ".join(OF_A_PAGE.get(kind, kind) for kind in generate.kinds(spec))


@pytest.mark.parametrize("spec", [spec for spec in DECLARED.values() if spec.checks], ids=lambda spec: spec.key)
def test_a_cause_says_that_it_warns_of_itself_where_it_does(spec: generate.CauseSpec) -> None:
    """What has happened is an event, all else that a check gives a warning."""
    checks = (check.check for check in spec.checks)
    notices = [notice for check in checks for notice in notices_of(Path(inspect.getsourcefile(check) or ""))]
    assert notices
    assert set(notices) == {kind for kind in spec.kinds if kind in (Kind.EVENT, Kind.WARNING)}


def notices_of(module: Path) -> Iterator[Kind]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Notice":
            happened = any(given.arg == "happened" for given in node.keywords)
            yield Kind.EVENT if happened else Kind.WARNING


def test_two_rules_never_stand_in_one_place() -> None:
    def one(window: Window, left: object) -> Claim | None: ...
    def other(window: Window, left: object) -> Claim | None: ...

    assert registry.placed([(20, one), (None, other), (10, other)]) == (other, one)
    with pytest.raises(ValueError, match="both stand at 10"):
        registry.placed([(10, one), (10, other)])


def test_colours_tell_causes_of_a_stall_apart() -> None:
    lost = [spec for spec in DECLARED.values() if {"stall", "bottleneck"} & set(generate.kinds(spec))]
    light, dark = (set(colours) for colours in zip(*(spec.colours for spec in lost)))
    assert len(light) == len(dark) == len(lost)


def test_a_cause_without_a_page_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(generate, "PAGES", tmp_path)
    with pytest.raises(ValueError, match=r"docs/causes/\w+\.md is missing, or begins with no heading"):
        list(generate.index())
