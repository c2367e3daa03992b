"""A report file holds the rows of the steps, bounded: HTML and Perfetto made of it draw every part of the run."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replay.replay import FOLDER
from tests.unit.cli import reports
from trainprobe.cli import main, published
from trainprobe.cli.live import StatusLine
from trainprobe.cli.outputs import RecordFile
from trainprobe.cli.watching import WatchSetup
from trainprobe.model.report import Rank, Report, Run, Stall
from trainprobe.model.steprow import RankSteps, StepRow
from trainprobe.runtime.session import probe_protocol
from trainprobe.wire import report as wire
from trainprobe.wire import report_file


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.json"
    assert main(["replay", str(FOLDER / "data_cpu.jsonl.gz"), "-o", str(path)]) == 0
    return path


def test_its_rows_are_those_of_all_steps(written: Path) -> None:
    (rank,) = (told := json.loads(written.read_text()))["runs"][0]["ranks"]
    (steps,) = told["steps"]
    assert (steps["run"], steps["rank"]) == (told["runs"][0]["run"], rank["name"])
    assert sum(row["count"] for row in steps["rows"]) == rank["steps"]["count"] - 1  # the first begins nowhere
    assert max(row["max"] for row in steps["rows"]) >= max(stall["seconds"] for stall in rank["stalls"])


@pytest.mark.parametrize("form", ["html", "perfetto"])
def test_what_is_drawn_of_it_has_them(written: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    assert main(["report", "--input", str(written), "--format", form, "-o", str(out)]) == 0
    text = out.read_text()
    if form == "html":
        (steps,) = json.loads(text.partition('id="data">')[2].partition("</script>")[0])["steps"]
        assert len(steps["rows"]) > 300
    else:
        assert sum(1 for event in json.loads(text)["traceEvents"] if event.get("name", "").startswith("step")) > 300


def test_many_rows_of_many_ranks_are_thinned() -> None:
    rows = [StepRow(float(at), 1.0, 1, 1.0, 1.0, {"compute": 1.0}) for at in range(5000)]
    ranks = [Rank(number, 8, 1, name=str(number)) for number in range(8)]
    report = Report(runs=[Run("a", [], "", "", 0.0, None, {}, ranks)])
    text = "".join(report_file.pieces(report, [RankSteps("a", str(number), rows) for number in range(8)]))
    read = report_file.steps_of(text)
    assert sum(len(one.rows) for one in read) <= report_file.ROWS
    assert all(sum(row.count for row in one.rows) == 5000 for one in read)


def full(folder: Path, ranks: int = 8) -> Path:
    """As of a run of eight GPUs with as many stalls as a report lists, of some kilobytes each."""
    stall = Stall("s", 100.0, 110.0, 10.0, "checkpoint", {"checkpoint": 10.0}, 1, 1, summary="x" * 10_000)
    made = [Rank(number, ranks, 1, name=str(number), wall_seconds=1e4, stalls=[stall] * 200) for number in range(ranks)]
    rows = [StepRow(100.0 + at, 1.0, 1, 1.0, 1.0, {"compute": 0.5, "data_wait": 0.5}) for at in range(5000)]
    report = Report(runs=[Run("train.py-1", [], "ann", "/", 100.0, 9000.0, {}, made)])
    steps = [RankSteps("train.py-1", str(number), rows) for number in range(ranks)]
    path = folder / "full.json"
    path.write_text("".join(report_file.pieces(report, steps)))
    return path


def test_the_largest_report_that_is_written_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = full(tmp_path)
    assert main(["advise", str(path)]) == 0, capsys.readouterr().err
    assert main(["report", str(path), "--format", "perfetto", "-o", str(tmp_path / "out")]) == 0
    assert ' steps"' in (tmp_path / "out").read_text()


def test_what_is_larger_is_refused_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = full(tmp_path, 1)
    monkeypatch.setattr(published, "FILE_LIMIT", 1 << 20)
    assert main(["advise", str(path)]) == 1
    assert f"{path} is no report: larger than {1 << 20} bytes" in capsys.readouterr().err


@pytest.mark.parametrize("runs", [0, 1, 2])
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_file_holds_the_report_as_it_is(runs: int, rows: int) -> None:
    report, row = reports.stalled(), StepRow(1.0, 1.0, 1, 1.0, 1.0)
    report.runs = report.runs[:1] * runs
    text = "".join(report_file.pieces(report, [RankSteps("a", "0", [row])] * rows))
    assert wire.decode(text) == report
    assert len(report_file.steps_of(text)) == rows


def test_a_file_without_rows_is_the_report() -> None:
    assert report_file.steps_of("".join(report_file.pieces(Report()))) == []


class Finished:
    """A session whose report is there."""

    def file(self) -> Iterator[str]:
        return report_file.pieces(Report())

    def finish(self, last: bytes) -> str:
        return "nothing was lost" if probe_protocol.end_of([last])[1] else ""


def test_a_report_is_written_though_nobody_reads_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`trainprobe run -o report.json … 2>&1 | head`: silent, and the command's exit code stays what it is."""
    out = tmp_path / "report.json"
    watching = WatchSetup(out, RecordFile(None), False, {}, [], False, StatusLine(2), "en")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        assert watching.conclude(Finished())  # type: ignore[arg-type]
        with contextlib.suppress(BrokenPipeError):
            gone.close()
    assert json.loads(out.read_text())["version"] == 1
