"""The page in the reader's language, and its figures as the text has them: in a real Chromium, of real recordings."""

from __future__ import annotations

import json
import random
import re
from datetime import timezone
from pathlib import Path

import pytest

from tests.browser.chromium import Tab
from tests.replay.replay import FOLDER, replay_named
from trainprobe.cli import main
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.model import amounts
from trainprobe.views import page

DRAWN = "document.getElementById('timeline').dataset.to > 0"
PHRASE = re.compile(r"(?<![\w/.])[a-z]{3,} [a-z]{2,}(?![\w/.(])", re.IGNORECASE)
"""Words in a row that are neither a path, a call nor a unit."""
NAMES = ("DataLoader worker", "trainprobe page", "trainprobe report", "systemctl status", "Slurm job")


def opened(tab: Tab, recording: str, folder: Path, language: str) -> Tab:
    report, html = folder / "report.json", folder / "report.html"
    assert main(["replay", str(FOLDER / f"{recording}.jsonl.gz"), "-o", str(report)]) == 0
    assert main(["report", "--input", str(report), "--format", "html", "--lang", language, "-o", str(html)]) == 0
    tab.open(html.as_uri())
    tab.wait_for(DRAWN)
    return tab


@pytest.mark.parametrize("recording", ["hf_trainer_saves", "worker_death"])
def test_a_page_in_chinese_says_nothing_in_english(tab: Tab, tmp_path: Path, recording: str) -> None:
    opened(tab, recording, tmp_path, "zh")
    shown = tab.evaluate(
        "[...document.querySelectorAll('body :not(script):not(pre):not(.mono):not(option)')].flatMap((one) =>"
        " [...one.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data)"
        ".concat(one.getAttribute('aria-label') ?? [], one.title ?? []))"
    )
    english = {text for text in shown if PHRASE.search(text) and not any(name in text for name in NAMES)}
    assert english == set()
    assert tab.evaluate("document.documentElement.lang") == "zh"


@pytest.mark.parametrize("recording", ["hf_trainer_saves", "data_cpu", "sb3_contended"])
def test_the_page_and_the_text_show_the_same_figures(tab: Tab, tmp_path: Path, recording: str) -> None:
    opened(tab, recording, tmp_path, "en")
    text = text_of(replay_named(recording), Style(zone=timezone.utc))
    tiles = re.split(r"\n+", tab.text("#verdict dl"))
    rank = replay_named(recording).runs[0].ranks[0]
    speed = f"{rank.steps.per_second:.2f} it/s"
    assert speed in text
    assert speed in " ".join(tiles)
    rows = re.findall(r"^  (\S+) +([\d.]+ \w+) +([\d.]+ %)", text.partition("Where the time went")[2], re.MULTILINE)
    ledger = tab.text("#ledger")
    assert len(rows) > 2
    for name, seconds, share in rows:
        assert seconds in ledger, name
        assert share in ledger, name
    cost = re.search(r"cost of watching: .*", text.replace("\n", " "))
    assert cost
    assert cost[0].split(", ")[0] in tab.text("#sources")


def test_saves_length_and_cost_of_a_run_are_the_text_s(tab: Tab, tmp_path: Path) -> None:
    opened(tab, "hf_trainer_callback", tmp_path, "en")
    text = text_of(replay_named("hf_trainer_callback"), Style(zone=timezone.utc)).replace("\n", " ")
    assert "3 saves, 18 files in all" in text
    assert "3 saves, 18 files in all" in tab.text("#checkpoints .head")
    [whole] = re.findall(r"lost: \S+ s of (\S+ s)", text)
    assert f"{whole} in all" in tab.text("#ledger .head")
    assert re.search(rf"ran for\s+{whole}", tab.text("#verdict dl"))
    assert text.rstrip().endswith(tab.text("#sources").rpartition(", ")[2].strip())


def test_a_function_keeps_its_name_at_the_begin_of_a_chinese_sentence(tab: Tab, tmp_path: Path) -> None:
    opened(tab, "hf_trainer_callback", tmp_path, "zh")
    tab.evaluate("document.querySelector('#events tr[data-item] button').click()")
    tab.wait_for("document.querySelector('#details .summary') !== null")
    assert tab.text("#details .summary").startswith("busy (samples.py:30)")
    assert ", " not in tab.text("#sources").rpartition("观测开销")[2]


def test_amounts_are_rounded_as_in_texts(tab: Tab, tmp_path: Path) -> None:
    blank = tmp_path / "blank.html"
    blank.write_text("<!DOCTYPE html><title>x</title><script id='words' type='application/json'>{}</script>")
    tab.open(blank.as_uri())
    drawn = random.Random(7)
    values = [0.0, *(drawn.uniform(1, 9.99) * 10 ** drawn.uniform(-6, 6) for _ in range(500))]
    scripts = page.asset("words.js") + page.asset("format.js")
    made = tab.evaluate(
        f"(() => {{ {scripts}; return {json.dumps(values)}.map((v) => [seconds(v), bytes(v), percent(v / 1e5)]); }})()"
    )
    kinds = (amounts.seconds, amounts.size, lambda value: amounts.percent(value / 1e5))
    wanted = [[kind(value) for kind in kinds] for value in values]
    assert [(v, one, two) for v, one, two in zip(values, made, wanted) if one != two] == []
