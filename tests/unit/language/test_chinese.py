"""The Chinese catalogue: complete, with every value in its place, and inert."""

from __future__ import annotations

import gzip
import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.cli import reports
from tests.unit.language.sentences import PLACE, said, skeleton, told
from trainprobe.cli import cells
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.language.chinese import CHINESE
from trainprobe.language.speaker import FREE, Speaker, chosen, places
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Rank, Report
from trainprobe.pipeline import Pipeline
from trainprobe.wire.recording import read_frames, read_header

RECORDINGS = Path(__file__).parents[2] / "replay" / "recordings"
WIDE = re.compile("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")
ENGLISH = Speaker("en")
CHINA = Speaker("zh")
SAME = {"{workers}", "False", "GPU", "it/s", "", "host", "cgroup"}
"""What is the same in both languages."""


def test_whatever_the_programs_say_is_in_the_catalogue() -> None:
    missing = {f"{where}: {text!r}" for where, text in said() if text not in CHINESE and text not in SAME}
    assert not missing, "add a line to language/chinese.py for each:\n" + "\n".join(sorted(missing))


def test_whatever_reports_say_is_in_the_catalogue() -> None:
    """A sentence is put together from pieces: each piece has to occur in an entry."""
    known = [re.sub(f"{PLACE}+", PLACE, skeleton(english)) for english in CHINESE]
    missing = set()
    for where, text in told():
        piece = re.sub(f"{PLACE}+", PLACE, text).strip(PLACE)
        if not any(piece in entry for entry in known):
            missing.add(f"{where}: {text.replace(PLACE, '{…}')!r}")
    assert not missing, "add a line to language/chinese.py for each:\n" + "\n".join(sorted(missing))


@pytest.mark.parametrize("english", CHINESE)
def test_an_entry_has_the_same_values_in_both_languages(english: str) -> None:
    assert places(english) == places(CHINESE[english])
    words = re.search("[a-zA-Z]{2}", skeleton(english))
    assert WIDE.search(CHINESE[english]) or english == CHINESE[english] or not words
    assert len([name for name in places(english) if name.endswith(FREE)]) <= 3


@cache
def replayed(name: str) -> Report:
    pipeline, last = Pipeline(), None
    with gzip.open(RECORDINGS / f"{name}.jsonl.gz") as lines:
        read_header(lines)
        for frame in read_frames(lines):
            pipeline.step(frame)
            last = frame.at
    assert last is not None
    return pipeline.report(last)


def sentences(rank: Rank) -> set[str]:
    """All that a person reads of a rank."""
    found = {rank.verdict.summary, rank.bound.why}
    if rank.exit is not None:
        found.add(rank.exit.reason)
    for item in (*rank.stalls, *rank.bottlenecks, *rank.warnings):
        found.update((item.summary, *item.advice, *(evidence.what for evidence in item.evidence)))
    for stall in rank.stalls:
        found.update(stall.chain)
    return {text for text in found if " " in text}


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.gz")), ids=lambda path: path.name.partition(".")[0])
def test_what_real_trainings_were_told_is_told_in_chinese(path: Path) -> None:
    report = replayed(path.name.partition(".")[0])
    found = set().union(*(sentences(rank) for run in report.runs for rank in run.ranks))
    assert found
    english = {text for text in found if not WIDE.search(CHINA.told(text))}
    assert not english


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (
            "checkpoint cost 9 s (8% of the run) in 4 stalls, every 30 steps: checkpoint /ab: 4 MB, 5 s of it in fsync",
            "checkpoint 共 4 次停顿，损失 9 秒（占运行时间 8%），每 30 步一次：检查点 /ab：4 MB，其中 fsync 用了 5 秒",
        ),
        (
            "worker 99 was killed by signal 9 by python (27335); the training ended 0.7 s later",
            "worker 99 被信号 9 杀死，发送者 python（27335）；0.7 秒后训练结束",
        ),
        (
            "exit code 1 after worker 99 was killed for want of memory",
            "worker 99 因内存不足被杀死，随后以退出码 1 结束",
        ),
        (
            "num_workers=3 instead of 1: a batch costs a worker 300 ms, a step without waiting takes 100 ms",
            "num_workers=3，而不是 1：一个 batch 需要 worker 300 ms，不等待的一步需要 100 ms",
        ),
        (
            "/dev/shm of container 3f2a holds 7.2 GB of 8.0 GB and grows by 12.0 MB a second: full in 1 min 06 s",
            "/dev/shm（容器 3f2a） 的 8.0 GB 已用 7.2 GB，每秒增长 12.0 MB：1 min 06 s 后满",
        ),
        ("a sentence that nobody wrote", "a sentence that nobody wrote"),
        ("writing /runs/a, b: c.log", "写入 /runs/a, b: c.log"),
    ],
)
def test_told(english: str, chinese: str) -> None:
    assert CHINA.told(english) == chinese
    assert ENGLISH.told(english) == english


def test_a_report_in_chinese_says_the_same_numbers_and_fits() -> None:
    style = Style(width=80, speaker=CHINA)
    for make in (reports.stalled, reports.healthy, reports.killed):
        english, chinese = text_of(make(), Style(width=80)), text_of(make(), style)
        assert "训练线程" in chinese or "损失" in chinese
        for line in chinese.splitlines():
            assert cells.width(line) <= 80, line
        numbers = [set(re.findall(r"\d+\.\d+", text)) for text in (english, chinese)]
        assert numbers[0] == numbers[1]


def test_states_and_causes_keep_their_names() -> None:
    for name in (*Cause, *State):
        if name.value not in ("startup", "compile", "evaluation"):  # phases have words
            assert CHINA.told(name.value) == name.value


def test_hostile_text_stays_what_it_is_and_takes_no_time() -> None:
    for piece in ("a, b: c (in on by to from; ", "checkpoint a: ", "{cause} ", "worker 1 in x on y for 3 s, in "):
        text = (piece * 400)[:990]
        assert isinstance(CHINA.told(text), str)
    assert CHINA.told("x" * 5000) == "x" * 5000
    assert CHINA.told("writing /a{path}{0}") == "写入 /a{path}{0}"


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
