"""A file that is none of what a verb reads: what it is instead, what mends it, exit code 1."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.replay.replay import replay_named
from tests.unit.advise.test_comparison import a_rank, drawn, stalls
from tests.unit.cli import reports
from trainprobe.cli import main
from trainprobe.wire import report as wire

RECORDING = Path(__file__).parents[2] / "replay" / "recordings" / "unmarked.jsonl.gz"
VERBS = (["advise", "{}"], ["compare", "{}", "{}"], ["report", "{}"], ["report", "--input", "{}"])
WRITES_ONE = "to mend it: trainprobe run -o REPORT.json -- COMMAND writes one"


def refused(verb: list[str], file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said on stderr; nothing is printed, and the code is 1."""
    assert main([word.replace("{}", str(file)) for word in verb]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, ["No such file or directory", WRITES_ONE]),
        (b"", ["is empty", WRITES_ONE]),
        (wire.encode(reports.stalled()).encode()[:4000], ["is no report: not JSON", WRITES_ONE]),
        (b'{"version": 2, "runs": []}', ["it is of version 2, and this program reads version 1"]),
        (b"[1, 2]", ["is no report: it has no version", WRITES_ONE]),
        (gzip.decompress(RECORDING.read_bytes())[:5000], ["is a recording, no report", "trainprobe replay "]),
        (gzip.compress(b"{}"), ["is compressed", "to mend it: gunzip -k "]),
    ],
    ids=["missing", "empty", "cut", "version", "no report", "recording", "compressed"],
)
def test_what_is_no_report(
    verb: list[str], content: bytes | None, says: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "it.json"
    if content is not None:
        file.write_bytes(content)
    told = refused(verb, file, capsys)
    assert all(words in told for words in says), told


@pytest.mark.parametrize("verb", [*VERBS, ["replay", "{}"]], ids=" ".join)
@pytest.mark.parametrize("name", ["a" * 300 + ".json", "a/" * 3000 + "it.json"], ids=["name", "path"])
def test_a_name_that_no_file_can_have(
    verb: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "File name too long" in refused(verb, tmp_path / name, capsys)


@pytest.mark.parametrize("verb", VERBS[:2], ids=lambda verb: verb[0])
def test_a_report_without_a_training(verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "it.json"
    file.write_text('{"version": 1, "runs": []}')
    told = refused(verb, file, capsys)
    assert "no run with a training" in told
    assert "to mend it: watch one: trainprobe run" in told


EVERY = {"advise": 1, "compare": 1, "report": 1}
ABSURD: list[tuple[str, object, dict[str, int]]] = [
    ("wall_seconds", 0.0, {"compare": 1}),
    ("wall_seconds", float("nan"), EVERY),
    ("wall_seconds", True, EVERY),
    ("stalls.0.seconds", 1e308, EVERY),
    ("stalls.0.seconds", 9e18, {"compare": 1}),
    ("stalls.0.start", -1e308, EVERY),
    ("stalls.0.start", -9e18, {}),
    ("steps.count", 1 << 63, EVERY),
    ("steps.median_seconds", 1e-320, {}),
    ("ordinary.count", 10**15, {"compare": 1}),
    ("ordinary.seconds", 0.0, {"compare": 1}),
    ("ordinary.fetches", 1e308, EVERY),
    ("ordinary.fetches", 9e18, {}),
    ("ordinary.stretches", [1e308] * 32, EVERY),
    ("ordinary.stretches", [0.0] * 32, {}),
    ("ordinary.wait_stretches", 10**12, {}),
    ("counters.phase_seconds.idle", -9e18, {"compare": 1}),
    ("memory.pss_peak_bytes", -5, {}),
    ("samples.pss_bytes", [], {}),
    ("samples.workers", [1], {}),
    ("samples.time", [1.0], {}),
]
"""A figure of a rank that somebody wrote into a report, and which verbs refuse it."""


@pytest.mark.parametrize("verb", [["advise", "{}"], ["compare", "{whole}", "{}"], ["report", "{}"]], ids=" ".join)
@pytest.mark.parametrize(("where", "figure", "codes"), ABSURD)
def test_figures_that_no_run_has_are_refused_in_a_line(
    verb: list[str],
    where: str,
    figure: object,
    codes: dict[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, file = tmp_path / "whole.json", tmp_path / "it.json"
    whole.write_text(wire.encode(replay_named("checkpoint")))
    told = json.loads(whole.read_text())
    place, *keys = told["runs"][0]["ranks"][0], *where.split(".")
    for key in keys[:-1]:
        place = place[int(key) if key.isdigit() else key]
    place[keys[-1]] = figure
    file.write_text(json.dumps(told))
    form = ["--format", "perfetto"] if verb[0] == "report" else []
    code = main([word.replace("{}", str(file)).replace("{whole}", str(whole)) for word in verb] + form)
    out, err = capsys.readouterr()
    assert (code, err.count("trainprobe: ")) == (codes.get(verb[0], 0), codes.get(verb[0], 0)), err
    assert (not out) == bool(code)
    assert not re.search(r"\b(inf|nan|Infinity|NaN)\b", out)
    if codes is EVERY:
        assert f"runs.0.ranks.0.{where}" in err
        assert WRITES_ONE in err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, ["No such file or directory", "trainprobe run --record REC.jsonl -- COMMAND writes one"]),
        (b"", ["not a trainprobe recording", "--record"]),
        (b"{}\n", ["not a trainprobe recording", "--record"]),
        (json.dumps({"trainprobe_recording": 9}).encode(), ["recording of version 9; this program reads up to"]),
        (gzip.decompress(RECORDING.read_bytes()).split(b"\n")[0] + b"\n", ["a recording without a frame", "--record"]),
        (wire.encode(reports.stalled(), indent=2).encode(), ["it is a report: trainprobe report --input "]),
        (RECORDING.read_bytes()[:40], ["ended before the end-of-stream marker"]),
    ],
    ids=["missing", "empty", "no recording", "version", "no frame", "report", "cut in its first line"],
)
def test_what_is_no_recording(
    content: bytes | None, says: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "it.jsonl"
    if content is not None:
        file.write_bytes(content)
    told = refused(["replay", "{}"], file, capsys)
    assert all(words in told for words in says), told


EVIL = "\x1b[2J\x1b]0;owned\x07\u202e"


@pytest.mark.parametrize(
    "verb", [["advise", "{}"], ["advise", "{}", "--run", "none"], ["advise", "{}", "--rank", "7"],
             ["compare", "{other}", "{}"], ["compare", "{other}", "{}", "--max-lost", "1%"],
             ["report", "{}", "--run", "none"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("valid", [True, False])
def test_a_strangers_file_does_nothing_to_a_terminal(
    verb: list[str], valid: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, report = tmp_path / "it.json", reports.stalled()
    rank = report.runs[0].ranks[0]
    report.runs[0].run = f"{EVIL}-1"
    rank.lost = {EVIL: 60.0}
    rank.ordinary = a_rank(drawn(1)).ordinary
    other = tmp_path / "other.json"
    other.write_text(wire.encode(report))
    rank.stalls = stalls(EVIL, *[2.0] * 5, period=100)
    rank.ordinary = a_rank(drawn(2), rank.stalls, {"compute": 0.02, EVIL: 0.025}).ordinary
    told = json.loads(wire.encode(report))
    if not valid:
        told["runs"][0]["ranks"][0]["lost"] = {EVIL: "much"}
    file.write_text(json.dumps(told))
    main([word.replace("{}", str(file)).replace("{other}", str(other)) for word in verb])
    said = "".join(capsys.readouterr())
    assert "\\x1b[2J" in said
    assert [character for character in said if not (character.isprintable() or character == "\n")] == []


def test_a_recording_is_read_compressed_and_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line of a training that was cut off is cut, too."""
    assert main(["replay", str(RECORDING)]) == 0
    whole = capsys.readouterr().out
    plain = tmp_path / "it.jsonl"
    plain.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    assert main(["replay", str(plain)]) == 0
    assert capsys.readouterr().out == whole
    for cut in (plain.read_bytes()[:-20], RECORDING.read_bytes()[:-100]):
        plain.write_bytes(cut)
        assert main(["replay", str(plain)]) == 0
        assert capsys.readouterr().out


@pytest.mark.parametrize("name", ["it.jsonl.gz", "link"])
def test_a_report_does_not_take_the_place_of_its_recording(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "it.jsonl.gz"
    file.write_bytes(RECORDING.read_bytes())
    (tmp_path / "link").symlink_to(file)
    assert main(["replay", str(file), "-o", str(tmp_path / name)]) == 2
    assert f"{file} is a recording, no report\n  to mend it: trainprobe replay " in capsys.readouterr().err
    assert file.read_bytes() == RECORDING.read_bytes()


def test_a_wrong_file_is_told_in_chinese(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with it too, but for the words of the JSON reader."""
    file = tmp_path / "it.json"
    assert "：没有这个文件或目录" in refused(["--lang", "zh", "report", "{}"], file, capsys)
    file.write_text("[1]")
    assert "不是报告：没有版本号" in refused(["--lang", "zh", "report", "--input", "{}"], file, capsys)
    assert "：不是 trainprobe 的录制文件" in refused(["--lang", "zh", "replay", "{}"], file, capsys)
    file.write_text("[")
    assert "：不是 JSON：" in refused(["--lang", "zh", "replay", "{}"], file, capsys)
    asked = ["--lang", "zh", "advise", "no-such-run", "--directory", str(tmp_path / "nothing")]
    assert "没有文件 'no-such-run'；至于运行：这里没有守护进程在发布报告" in refused(asked, file, capsys)


def test_a_wrong_configuration_is_told_in_chinese(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trainprobe.yaml"
    file.write_text("tresholds: {}\nretention: {days: soon}\n")
    assert main(["--lang", "zh", "run", "--config", str(file), "--", "true"]) == 125
    assert capsys.readouterr().err.splitlines() == [
        "trainprobe: 配置有错误：",
        f"{file}：tresholds：没有这个键；是不是 thresholds？",
        f"{file}：retention.days：必须是数字，而不是 'soon'",
    ]


def test_what_cannot_be_started_or_merged_is_told_in_chinese(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--lang", "zh", "--", str(tmp_path / "none")]) == 127
    assert capsys.readouterr().err == f"trainprobe: {tmp_path / 'none'}：没有这个文件或目录\n"
    report, trace = tmp_path / "report.json", tmp_path / "trace.json"
    report.write_text(wire.encode(reports.stalled()))
    trace.write_text("{}")
    merge = ["--format", "perfetto", "--merge", str(trace)]
    assert main(["report", "--lang", "zh", str(report), *merge]) == 1
    assert "没有 traceEvents" in capsys.readouterr().err
