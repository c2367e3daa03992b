"""`trainprobe compare`: what it says of two reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.advise.test_comparison import a_rank, drawn, stalls
from trainprobe.cli import main
from trainprobe.model.report import Rank, Report, Run
from trainprobe.wire import report as wire


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are wrapped: where they are depends on no name of a temporary folder."""
    monkeypatch.chdir(tmp_path)


def written(folder: Path, name: str, rank: Rank) -> str:
    path = folder / f"{name}.json"
    path.write_text(wire.encode(Report(runs=[Run(f"{name}.py-1", [], "ann", "/", 0.0, None, {}, [rank])])))
    return path.name


def test_slower_and_by_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = written(tmp_path, "a", a_rank(drawn(1)))
    b = written(tmp_path, "b", a_rank(drawn(2), stalls("checkpoint", *[2.0] * 5, period=100)))
    assert main(["compare", a, b]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"A  a.py-1 ({a}): 500 ordinary steps"
    assert lines[3] == "B is 30.8 % slower (26.2 to 35.1 %): 64.9 ms a step instead of 44.9 ms."
    assert lines[4] == "  99.2 % of it: stalls by checkpoint, +19.8 ms a step"
    speed = next(line for line in lines if "step in training, mean" in line)
    assert speed.endswith("worse")


def test_equal_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = written(tmp_path, "a", a_rank(drawn(1))), written(tmp_path, "b", a_rank(drawn(2)))
    assert main(["compare", a, b]) == 0
    out = capsys.readouterr().out
    assert "No difference that these runs can tell" in out
    assert "better" not in out
    assert "worse" not in out


def test_faster_by_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = written(tmp_path, "a", a_rank(drawn(1))), written(tmp_path, "b", a_rank(drawn(2, 1.6)))
    assert main(["compare", "--batch", "4,8", a, b]) == 0
    out = capsys.readouterr().out
    said = out.splitlines()[3]
    assert said.startswith("B is 2"), "twice the samples in 1.6 times the time"
    assert " ms a sample instead of 11.2 ms." in said
    assert "100 % of it: compute, -2." in out
    assert "samples/s in training" in out


def test_parts_that_cancel_out_are_no_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice the loading for half of the computing, 15 % on the whole: "400 % of it" would say nothing."""
    lengths = drawn(2, 1.15)
    mean = sum(lengths) / len(lengths)
    a = written(tmp_path, "a", a_rank(drawn(1), None, {"compute": 0.040, "data_wait": 0.005}))
    b = written(tmp_path, "b", a_rank(lengths, None, {"compute": 0.015, "data_wait": mean - 0.015}))
    assert main(["compare", a, b]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("B is 13.4 % slower"))
    assert lines[at + 1] == "  data_wait: +31.8 ms a step"
    assert lines[at + 2] == "  against it: compute, -25.0 ms a step"


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = written(tmp_path, "a", a_rank(drawn(1))), written(tmp_path, "b", a_rank(drawn(2, 1.3)))
    assert main(["compare", "--json", a, b]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["told"] is True
    assert told["figures"][0]["better"] == -1
    assert sum(part["change"] for part in told["parts"]) == pytest.approx(
        told["b_step_seconds"] - told["a_step_seconds"]
    )


def test_too_few_steps_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = written(tmp_path, "a", a_rank(drawn(1)[:30])), written(tmp_path, "b", a_rank(drawn(2)))
    assert main(["compare", a, b]) == 0
    assert "Too few ordinary steps" in capsys.readouterr().out
    assert main(["compare", written(tmp_path, "c", Rank(0, 1, 7)), b]) == 1
    assert "watch it for a minute" in capsys.readouterr().err


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = written(tmp_path, "a", a_rank(drawn(1)))
    assert main(["compare", a, str(tmp_path / "none.json")]) == 1
    assert "trainprobe run -o REPORT.json" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--batch", "many", a, a])
    assert ended.value.code == 2
    assert "examples: 32, or 4,8" in capsys.readouterr().err


def test_a_name_that_is_neither_file_nor_run_is_told_as_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped file's name is the likelier mistake."""
    assert main(["compare", "befor", "after", "--directory", str(tmp_path)]) != 0
    said = capsys.readouterr().err
    assert "there is no file 'befor'" in said
    assert "no daemon publishes here" in said


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (1.0, "No difference that these runs can tell"),
        (1.1, "B is "),
    ],
)
def test_processors_that_were_slower_themselves_are_said(
    work: float, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speed = 1.06
    a, b = a_rank(drawn(1)), a_rank(drawn(2, work * speed))
    a.ordinary.paces, b.ordinary.paces = [26e-6] * 5, [26e-6 * speed] * 5
    files = [written(tmp_path, "a.json", a), written(tmp_path, "b.json", b)]
    assert main(["compare", *files]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "At equal speed of the processors: " + said in out
    assert "The processors themselves were 5.7 % slower during B" in out
    assert "By the clock B is " in out
    assert main(["compare", "--lang", "zh", *files]) == 0
    assert "处理器速度相同时：" in capsys.readouterr().out
    assert main(["compare", "--json", *files]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pace_change"] == pytest.approx(1 / speed - 1)
    assert told["clock_change"] < told["change"]
    assert told["low"] < told["change"] < told["high"]


def test_a_wait_is_told_by_itself_and_a_slower_disk_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = a_rank(drawn(1)), a_rank(drawn(1))
    for rank, took, calls in ((a, 0.001, 2.0), (b, 0.004, 8.0)):
        rank.ordinary.wait_stretches = 20
        rank.ordinary.waits = {"other/write": [took] * 20, "logging/write": [took] * 20}
        rank.ordinary.written_calls = {"other/write": [calls] * 20, "logging/write": [2.0] * 20}
    files = [written(tmp_path, "a", a), written(tmp_path, "b", b)]
    assert main(["compare", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    lines = lines[lines.index("") + 1 :]
    assert lines[:2] == [
        "B waits 3.00 ms longer a step: writing files (other), 6.7 % of A's.",
        "  2 calls a step in A, 8 in B",
    ]
    assert lines[2].startswith("On the whole B is 0 % slower")
    assert "writing files (logging): 3.00 ms longer a step in B, in as many calls and bytes: the disk was" in lines[3]
    assert main(["compare", "--lang", "zh", files[1], files[0]]) == 0
    assert "B 每步少等待 3.00 ms：写文件 (other)，差值相当于 A 用时的 6.7 %。" in capsys.readouterr().out
    assert main(["compare", "--json", *files]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["told"], told["waits_told"]) == (False, True)
    assert told["waits_change"] == pytest.approx(0.003 / told["a_step_seconds"])


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (["--max-step-time-regression", "5%", "--lang=zh"], 1, "失败：单步时间 +44.5 %，速度 -30.8 %（限制 +5.0 %）"),
        (["--max-lost", "10%", "--lang=zh"], 0, "通过：B 的时间浪费了 10.0 %（限制 10.0 %），最多的是 checkpoint"),
        (["--max-step-time-regression", "5%"], 1, "FAIL: step time +44.5 %, speed -30.8 % (limit +5.0 %)"),
        (["--max-step-time-regression", "60%"], 0, "OK: step time +44.5 %, speed -30.8 % (limit +60.0 %)"),
        (["--max-lost", "5%"], 1, "FAIL: lost 10.0 % of B's time (limit 5.0 %), most to checkpoint"),
        (["--max-lost", "10 %"], 0, "OK: lost 10.0 % of B's time (limit 10.0 %), most to checkpoint"),
    ],
)
def test_as_a_gate_it_says_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, line: str
) -> None:
    slower = a_rank(drawn(2), stalls("checkpoint", *[2.0] * 5, period=100))
    slower.lost = {"checkpoint": slower.wall_seconds / 10}
    a, b = written(tmp_path, "a", a_rank(drawn(1))), written(tmp_path, "b", slower)
    assert main(["compare", a, b, *options]) == code
    assert capsys.readouterr().out.splitlines() == [line]


def test_what_may_be_chance_passes_the_gate_and_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = written(tmp_path, "a", a_rank(drawn(1))), written(tmp_path, "b", a_rank(drawn(2, 1.01)))
    assert main(["compare", a, b, "--max-step-time-regression", "0%"]) == 0
    assert "may be chance" in capsys.readouterr().out


def test_other_batches_ask_for_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = a_rank(drawn(1)), a_rank(drawn(2, 1.6))
    first.memory.shm_bytes_per_batch, second.memory.shm_bytes_per_batch = 1e6, 2e6
    a, b = written(tmp_path, "a", first), written(tmp_path, "b", second)
    assert main(["compare", a, b]) == 0
    assert "The batches differ (1.0 MB and 2.0 MB of shared memory each): --batch N,M" in capsys.readouterr().out
    assert main(["compare", "--batch", "4,8", a, b]) == 0
    assert "The batches differ" not in capsys.readouterr().out


def test_a_limit_that_is_no_percentage_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["compare", "a.json", "b.json", "--max-lost", "0.1"])
    assert left.value.code == 2
    assert "is no percentage" in capsys.readouterr().err
