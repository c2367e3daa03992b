"""No recording's report, text and advice contradict each other, in English and in Chinese; every figure that they show
holds when it is recomputed from the report. Chinese has Chinese punctuation."""

from __future__ import annotations

import json
import re
from datetime import timezone
from pathlib import Path

import pytest

from tests.contract import figures
from tests.contract.contradictions import contradictions
from tests.replay.replay import RECORDINGS, name_of, replay
from trainprobe.advise.settings import advice as advice_of
from trainprobe.cli import advise
from trainprobe.cli.choosing import Chosen
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.text.render import Speaker
from trainprobe.wire import report as wire

ENGLISH, CHINESE = (Style(figures.WIDE, zone=timezone.utc, speaker=Speaker(language)) for language in ("en", "zh"))


UNNATURAL = re.compile(
    "[A-Za-z0-9%](?=[\u4e00-\u9fff])|[\u4e00-\u9fff](?=[A-Za-z0-9])"  # without a space
    "|[）。，：；] (?=[\u4e00-\u9fff])|[\u4e00-\u9fff）][,;:](?= |$)",  # a space beside a full-width mark, other marks
    re.MULTILINE,
)


@pytest.mark.parametrize("recording", RECORDINGS, ids=name_of)
def test_a_recordings_statements_agree(recording: Path) -> None:
    _, report = replay(recording)
    text, data = text_of(report, ENGLISH), json.loads(wire.encode(report))
    in_chinese = text_of(report, CHINESE)
    found = list(figures.of_translation(text, in_chinese))
    made, ranks = None, [(run, rank) for run in report.runs for rank in run.ranks]
    for number, (run, rank) in enumerate(ranks):
        chosen, advice = Chosen(run, rank, report.host.cpus), advice_of(run, rank, report.host.cpus)
        made = advise.as_json(chosen, advice)
        english, chinese = ("\n".join(advise.advice_lines(chosen, advice, style)) for style in (ENGLISH, CHINESE))
        found += figures.of_translation(english, chinese)
        found += figures.of_rounding(english)
        in_chinese += f"\n{chinese}"
        if advice.refused is None:
            found += figures.of_advice(data["runs"][0]["ranks"][number], made, english)
    if len(ranks) == 1:
        found += figures.of_text(data, text)
    for read in (text, in_chinese):
        found += figures.of_rounding(read)
    found += [in_chinese[max(0, one.start() - 20) : one.end() + 20] for one in UNNATURAL.finditer(in_chinese)]
    assert found + contradictions(data, text, made if len(ranks) == 1 else None) == []
