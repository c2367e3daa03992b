"""A figure that is changed anywhere in a text is found by the checker of figures."""

from __future__ import annotations

import json
import re
from datetime import timezone

import pytest

from tests.contract import figures
from tests.replay.replay import replay_named
from trainprobe.advise.settings import advice as advice_of
from trainprobe.cli import advise
from trainprobe.cli.choosing import Chosen
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.wire import report as wire

STYLE = Style(figures.WIDE, zone=timezone.utc)
NOT_FIGURES = re.compile(
    r"\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d|pid \d+|[0-9a-f]{8}\b|p99|\d+ MB( with \d+ more files)?|\S*/\S+|"
    r"\(\S+:\d+\)|change first.*|1 %"
)  # fmt: skip


def changed(text: str, at: re.Match[str]) -> str:
    number = at[0][:-1] + str((int(at[0][-1]) + 5) % 10)
    return text[: at.start()] + number + text[at.end() :]


def test_every_figure_of_a_text_that_is_changed_is_found() -> None:
    report = replay_named("hf_trainer_saves")
    data, text = json.loads(wire.encode(report)), text_of(report, STYLE)
    assert list(figures.of_text(data, text)) == []
    shown = text[: text.index("What to do")] + "\n"
    left = NOT_FIGURES.sub(lambda found: "x" * len(found[0]), shown)
    missed = [at[0] for at in figures.NUMBER.finditer(left) if not list(figures.of_text(data, changed(text, at)))]
    assert missed == []


def test_every_figure_of_a_proposal_that_is_changed_is_found() -> None:
    report = replay_named("hf_trainer_saves")
    run, rank = report.runs[0], report.runs[0].ranks[0]
    chosen, made = Chosen(run, rank, 2), advice_of(run, rank, 2)
    data, text = (
        json.loads(wire.encode(report))["runs"][0]["ranks"][0],
        "\n".join(advise.advice_lines(chosen, made, STYLE)),
    )
    told = advise.as_json(chosen, made)
    assert list(figures.of_advice(data, told, text)) == []
    first = "\n".join(text.splitlines()[:2])
    left = NOT_FIGURES.sub(lambda found: "x" * len(found[0]), first)
    for at in figures.NUMBER.finditer(left):
        assert list(figures.of_advice(data, told, changed(text, at))), at[0]


@pytest.mark.parametrize(("said", "value", "agrees"), [
    ("412 ms", 0.4124, True), ("412 ms", 0.4131, False), ("12.3 s", 12.34, True), ("5 min 12 s", 312.4, True),
    ("5 min 12 s", 314.0, False), ("3 h 12 min", 11530.0, True), ("903 us", 0.0009031, True),
])  # fmt: skip
def test_a_duration_agrees_to_its_last_digit(said: str, value: float, agrees: bool) -> None:
    assert figures.lasts(said, value) == agrees


@pytest.mark.parametrize(("said", "is_right"), [
    ("in 6.52 s", True), ("in 6.5 s", False), ("in 6 s", True), ("in 15.58 s", False), ("15.6 s", True),
    ("0.86 s", False), ("860 ms", True), ("用了 0.86 秒", False), ("(+52%)", False), ("52.0 %", True),
    ("52.04 %", False), ("0.0 %", True),
])  # fmt: skip
def test_a_figure_that_is_rounded_otherwise_is_found(said: str, is_right: bool) -> None:
    assert bool(list(figures.of_rounding(said))) != is_right


def test_a_translation_with_another_figure_is_found() -> None:
    assert list(figures.of_translation("1 stall of 3 s", "1 次停顿，3 s")) == []
    assert list(figures.of_translation("1 stall of 3 s", "一次停顿，3 s"))
