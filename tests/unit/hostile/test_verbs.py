"""No verb fails, takes long or prints what is no number, whatever figures somebody wrote into its file: a report or a
recording of ours, bent in some of them. What it cannot use it refuses in a line. The long run is at night."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.replay.replay import FOLDER, replay_named
from trainprobe.cli import FAILED, OK, main
from trainprobe.pipeline import Pipeline
from trainprobe.wire import report as wire

CASES, CASES_AT_NIGHT = 12, 5_000
LONG, MUCH = 5.0, 10_000_000  # seconds of CPU, characters
NAMES = ("checkpoint", "data_storage", "amp_on_gpu", "worker_death")
LINES = 60  # of a recording
WHOLE = (0, 1, -1, 3, 64, 4096, 10**6, 10**9, 10**15, 2**63 - 1, -(2**63), 2**63)
BROKEN = (0.0, 1e-18, 1e-9, 1.0, -1.0, 3600.0, 1.7e9, 1e15, 9e18, -9e18, 1e-320, 1e308, float("nan"), float("inf"))
RATES = (0.001, 0.01, 0.05)
VERBS = (
    "advise it.json", "advise it.json --json", "compare it.json whole.json", "compare whole.json it.json --json",
    "compare whole.json it.json --batch 4,8", "compare whole.json it.json --max-step-time-regression 5% --max-lost 9%",
    "report it.json", "report it.json --since 2h", "report it.json --format json", "report it.json --format html",
    "report it.json --format perfetto", "report it.json --lang zh", "top --once --directory .",
)  # fmt: skip
REPORT = Pipeline.report
"""Without the check of what tests make: what a bent recording says may contradict itself."""
NO_NUMBER = re.compile(r"(?<![\w\"])-?(inf|nan|Infinity|NaN)\b")


@cache
def report_text(name: str) -> str:
    return wire.encode(replay_named(name))


@cache
def recorded_lines(name: str) -> list[bytes]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz") as lines:
        return lines.readlines()[:LINES]


def bent(chance: random.Random, value: Any, rate: float) -> Any:
    """The same with some numbers changed, and some lists cut."""
    if isinstance(value, dict):
        return {key: bent(chance, one, rate) for key, one in value.items()}
    if isinstance(value, list):
        shorter = value[: chance.randint(0, 1)] if chance.random() < rate / 8 else value
        return [bent(chance, one, rate) for one in shorter]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or chance.random() >= rate:
        return value
    if chance.random() < 0.3:
        return type(value)(value * chance.choice((-1, 2, 1000, 1_000_000)))
    return chance.choice(WHOLE if isinstance(value, int) else BROKEN)


def called(command: str, capsys: pytest.CaptureFixture[str]) -> int:
    """The exit code. Fails where a verb neither answers nor refuses, or takes long about it."""
    began = time.process_time()
    code = main(command.split())
    took = time.process_time() - began
    out, err = capsys.readouterr()
    assert took < LONG, f"{took:.1f} s"
    assert len(out) + len(err) < MUCH
    assert code in (OK, FAILED), err
    if code == OK or "--max-lost" in command:
        assert out or err
        assert "html" in command or not (found := NO_NUMBER.search(out)), found
    else:
        assert (out, err.count("trainprobe: ")) == ("", 1), err
    return code


def bend(chance: random.Random, cases: int, capsys: pytest.CaptureFixture[str]) -> dict[int, int]:
    """Runs so many reports and recordings, in the working directory; how often each exit code came."""
    codes = dict.fromkeys((OK, FAILED), 0)
    for _ in range(cases):
        rate = chance.choice(RATES)
        told = bent(chance, json.loads(report_text(chance.choice(NAMES))), rate)
        for name, text in (("whole", report_text(chance.choice(NAMES))), ("it", json.dumps(told | {"version": 1}))):
            Path(f"{name}.json").write_text(text)
        Path("report.json").write_text(text)
        header, *lines = recorded_lines(chance.choice(NAMES))
        frames = [json.loads(line) for line in lines]
        frames = [bent(chance, frame, rate / 8) | {"at": frame["at"]} for frame in frames]
        Path("it.jsonl").write_bytes(header + "".join(json.dumps(frame) + "\n" for frame in frames).encode())
        for command in (*chance.sample(VERBS, 4), "replay it.jsonl -o of_it.json"):
            try:
                codes[called(command, capsys)] += 1
            except Exception as error:
                raise AssertionError(f"{command}, in {Path.cwd()}") from error
    return codes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Pipeline, "report", REPORT)


def test_they_answer_or_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    codes = bend(random.Random(random.getrandbits(32)), CASES, capsys)
    assert min(codes.values()) > CASES // 4, codes


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_thousands_of_times(capsys: pytest.CaptureFixture[str]) -> None:
    """``TRAINPROBE_SEED`` repeats a night."""
    bend(random.Random(int(os.environ.get("TRAINPROBE_SEED") or random.getrandbits(32))), CASES_AT_NIGHT, capsys)
