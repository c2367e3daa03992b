"""Reports in the reader's language."""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.replay.replay import RECORDINGS, name_of, replay_named
from tests.unit.cli import reports
from trainprobe.causes import situation
from trainprobe.causes.registry import DECLARED
from trainprobe.causes.stalls import checkpoint, data_storage
from trainprobe.cli import cells
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.collect.source import Failed, Sources, Unavailable
from trainprobe.model.message import Message
from trainprobe.model.moment import Moment
from trainprobe.model.report import SENTENCES, STALL, Host, Report, Stall, Verdict
from trainprobe.pipeline.host import HostState
from trainprobe.pipeline.report import verdict
from trainprobe.pipeline.report.rank import NO_MARKS
from trainprobe.pipeline.report.stalls import EVERY_STEPS, RHYTHM
from trainprobe.runtime.discovery.user_shares import FULL_OF_ONE, RUNS_NAME
from trainprobe.runtime.sampling import unanswered
from trainprobe.text.catalogue import LANGUAGES, chosen
from trainprobe.text.render import Speaker
from trainprobe.wire import report as wire

WIDE = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
CHINA = Speaker("zh")
ROOT = Path(__file__).parents[3]


@cache
def replayed(name: str) -> Report:
    return replay_named(name)


def sentences(value: Any) -> list[tuple[str, Message | None]]:
    """All sentences of a report, each with its message."""
    if isinstance(value, list):
        return [one for item in value for one in sentences(item)]
    if not dataclasses.is_dataclass(value) or isinstance(value, Message):
        return []
    found = [one for field in dataclasses.fields(value) for one in sentences(getattr(value, field.name))]
    for text, source in SENTENCES.get(value.__class__, {}).items():
        said, messages = getattr(value, text), getattr(value, source)
        found += zip(said, messages, strict=True) if isinstance(said, list) else [(said, messages)] if said else []
    return found


@pytest.mark.parametrize("path", RECORDINGS, ids=name_of)
def test_each_sentence_of_real_trainings_has_its_message_and_is_chinese(path: Path) -> None:
    report = replayed(name_of(path))
    found = sentences(report)
    assert found
    for text, message in found:
        assert message is not None, text
        assert str(message) == text
    for text, message in sentences(CHINA.report(report)):
        if message is not None and message.id == NO_MARKS.id:
            continue  # what a probe said of a library
        assert WIDE.search(text) or not re.search("[a-z]{3} ", text), text


def test_a_report_that_was_read_back_says_the_same() -> None:
    for name in ("checkpoint", "worker_death", "collective_wait"):
        again = wire.decode(wire.encode(replayed(name)))
        assert CHINA.report(again) == CHINA.report(replayed(name))
        assert Speaker("en").report(again) is again


def _zh(message: Message) -> str:
    return CHINA.message(message, "")


SAVED = checkpoint.SUMMARY(
    path="/ab", details=[checkpoint.SIZE(bytes=4e6, others=None), checkpoint.SYNCED(seconds=5.0)]
)
FIRST = verdict.FIRST(advice=checkpoint.SAVE_BESIDE())
COST = verdict.STALLS_COST(
    cause=DECLARED["checkpoint"].named(),
    seconds=9.0,
    share=0.08,
    times=verdict.stalls(4),
    rhythm=verdict.EVERY(steps=30),
    what=verdict.BECAUSE(what=SAVED),
    first=FIRST,
)


@pytest.mark.parametrize(
    ("message", "english", "chinese"),
    [
        (
            COST,
            f"saving a checkpoint cost 9.00 s (8.0 % of the run) in 4 stalls, every 30 steps: {SAVED}{FIRST}",
            f"保存检查点：浪费了 9.00 s（占运行时间 8.0 %），共 4 次停顿，每 30 步一次：{_zh(SAVED)}{_zh(FIRST)}",
        ),
        (SAVED, "checkpoint /ab: 4 MB, 5.00 s of it in fsync", "检查点 /ab：4 MB，其中 fsync 用了 5.00 s"),
        (situation.PROCESS(role="worker", pid=7), "worker 7", "worker 7"),
        (
            data_storage.SUMMARY(where=data_storage.ON_FILE(path="/a, b: c {0} {path}")),
            "reading data from slow storage on /a, b: c {0} {path}",
            "从慢速存储读取数据，位于 /a, b: c {0} {path}",
        ),
    ],
)  # fmt: skip
def test_a_message_in_both(message: Message, english: str, chinese: str) -> None:
    assert str(message) == english
    assert CHINA.message(message, "") == chinese
    assert Speaker("en").message(message, "") == english


def test_why_a_source_is_off_is_chinese_and_english_in_the_json() -> None:
    sources = Sources()
    sources.record("slots", Unavailable(FULL_OF_ONE(number=64, what=RUNS_NAME(), user=1000), "a command"), 0)
    sources.record("processes", unanswered.processes([1, 2, 3, 4], [(9, 1, 1000)]), 0)
    sources.record("bpf", Failed("OSError: broken"), 0)
    view = HostState(Host(), sources={state.name: state for state in sources.states()})
    report = wire.decode(wire.encode(view.report(Moment(0, 0), [])))
    slots, processes = report.sources["slots"], report.sources["processes"]
    assert (slots.reason, slots.remedy) == ("more than 64 runs of user 1000", "a command")
    assert processes.reason.startswith("reads of process 1, 2, 3 and 1 more do not come back: nothing more is read")
    assert processes.reason.endswith("which reads them, cannot be killed: no files of user 1000 are asked for")
    shown = CHINA.report(report).sources
    assert (shown["slots"].reason, shown["slots"].remedy) == ("用户 1000 的运行超过 64 个", "a command")
    assert WIDE.search(shown["processes"].reason)
    assert WIDE.search(shown["processes"].remedy)
    assert shown["bpf"].reason == "OSError: broken"
    assert "! slots 不可用：用户 1000 的运行超过 64 个" in text_of(report, Style(speaker=CHINA))


def test_no_source_has_a_reason_that_is_no_message() -> None:
    """What a library says of its error may stand as it is."""
    found = []
    for path in sorted((ROOT / "daemon").rglob("*.py")):
        text = path.read_text()
        if "Unavailable" not in text and "Failed" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") not in ("Unavailable", "Failed"):
                continue
            literals = [
                " ".join(str(part.value) for part in ast.walk(one) if isinstance(part, ast.Constant))
                for one in call.args
                if isinstance(one, (ast.Constant, ast.JoinedStr))
            ]
            found += [f"{path}:{call.lineno}: {one}" for one in literals if re.search("[a-z]{2,} [a-z]{2,}", one)]
    assert not found


@pytest.mark.parametrize(
    "message",
    [
        None,
        Message("later.news", {"x": 1}),
        Message(SAVED.id, {"path": "/a"}),
        Message(verdict.HEALTHY.id, {"steps": "many", "seconds": "few"}),
        Message(SAVED.id, {"path": "/a", "details": [Message("later.news")]}),
    ],
)
def test_what_another_version_wrote_stays_english(message: Message | None) -> None:
    told = Verdict(summary="in English", message=message)
    assert CHINA.report(told).summary == "in English"


def test_an_old_report_stays_english() -> None:
    stall = Stall("s", 1.0, 2.0, 1.0, "swap", {}, 1, 1, None, "a", ["b", "c"], advice=["d"])
    assert CHINA.report(stall) == stall


def test_a_report_in_chinese_says_the_same_numbers_and_fits() -> None:
    style = Style(width=80, speaker=CHINA)
    for report in (reports.stalled(), reports.killed(), replayed("checkpoint"), replayed("data_cpu")):
        english, chinese = text_of(report, Style(width=80)), text_of(report, style)
        assert "训练线程" in chinese or "浪费" in chinese
        for line in chinese.splitlines():
            assert cells.width(line) <= 80, line
        numbers = [set(re.findall(r"\d+\.\d+", text)) for text in (english, chinese)]
        assert numbers[0] == numbers[1]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_rhythm_of_a_cause_is_shown_once(language: str) -> None:
    report = reports.stalled()
    rank = report.runs[0].ranks[0]
    rhythm = RHYTHM(every=EVERY_STEPS(steps=300), seconds=6.0, share=0.08)
    for stall in rank.stalls:
        stall.message = STALL(what=SAVED, longest=None, rhythm=rhythm, given=None)
        stall.summary = str(stall.message)
    text = text_of(report, Style(width=300, speaker=Speaker(language)))
    every = "every 300 steps, median 6.00 s" if language == "en" else "每 300 步一次，中位数 6.00 s"
    assert text.count(every) == 2, "of two causes"


@pytest.mark.parametrize(
    ("asked", "environment", "language"),
    [
        (None, {}, "en"),
        (None, {"LANG": "zh_CN.UTF-8"}, "zh"),
        (None, {"LANG": "de_DE.UTF-8"}, "en"),
        (None, {"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        (None, {"LC_MESSAGES": "zh_TW.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ("en", {"LANG": "zh_CN.UTF-8"}, "en"),
        ("zh", {}, "zh"),
    ],
)
def test_the_language_is_asked_for_or_the_environments(
    asked: str | None, environment: dict[str, str], language: str
) -> None:
    assert chosen(asked, environment) == language
