"""`trainprobe advise`: the table, and whose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.advise.test_settings import a_rank
from tests.unit.cli import reports
from trainprobe.cli import main
from trainprobe.model.report import Change, Host, Report, Run
from trainprobe.wire import report as wire


def written(folder: Path, *runs: Run) -> str:
    path = folder / "report.json"
    path.write_text(wire.encode(Report(host=Host(cpus=16), runs=list(runs))))
    return str(path)


def a_run(name: str = "train.py-1", workers: int = 2, wait: float = 0.05) -> Run:
    return Run(name, [], "ann", "/", 0.0, None, {}, [a_rank(workers, wait, 0.3)])


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", written(tmp_path, a_run())]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "train.py-1: 1000 steps in 2 min 40 s"
    assert lines[1] == "All proposals together: 50.0 s of 2 min 40 s (31.2 %), 6.67 it/s become 10.00"
    assert lines[4].split() == ["num_workers", "2", "3", "50.0", "s", "(31.2", "%)"]
    assert "Leave as they are" in lines


def test_nothing_to_gain_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run("train.py-2", [], "ann", "/", 0.0, None, {}, [a_rank()])
    assert main(["advise", written(tmp_path, run)]) == 0
    assert "No setting is predicted to gain" in capsys.readouterr().out


@pytest.mark.parametrize(("lost", "told"), [(16.0, True), (1.0, False)])
def test_each_loss_that_no_setting_mends_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lost: float, told: bool
) -> None:
    rank = a_rank(wait=0.05, cpu=0.3)
    rank.lost = {"data_cpu": 20.0, "gc_pause": lost}
    rank.changes = [Change("gc_pause", ["gc.freeze()"])]
    path = written(tmp_path, Run("train.py-2", [], "ann", "/", 0.0, None, {}, [rank]))
    assert main(["advise", path]) == 0
    out = capsys.readouterr().out
    assert ("  - gc_pause 16.0 s (10.0 %): gc.freeze()" in out) == told
    assert "  - data_cpu" not in out, "num_workers is about it"
    assert main(["advise", "--json", path]) == 0
    causes = {one["cause"]: one["by_settings"] for one in json.loads(capsys.readouterr().out)["causes"]}
    assert causes == ({"data_cpu": True, "gc_pause": False} if told else {"data_cpu": True})


def test_json_is_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--json", written(tmp_path, a_run())]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["gain_seconds"] == pytest.approx(50.0)
    workers = told["settings"][0]
    assert (workers["name"], workers["now"], workers["proposed"]) == ("num_workers", "2", "3")


def test_the_daemons_runs_by_name_and_by_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, a_run("train.py-1"), a_run("other.py-2"), reports.killed().runs[0])
    assert main(["advise", "--run", "other", "--directory", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("other.py-2")
    assert main(["advise", "--run", "train.py-00000002", "--rank", "0", "--directory", str(tmp_path)]) == 0
    assert "rank 0" in capsys.readouterr().out
    assert main(["advise", "--run", "nobody", "--directory", str(tmp_path)]) == 1
    assert "known there: train.py-1, other.py-2" in capsys.readouterr().err
    assert main(["advise", "--run", "train.py-00000002", "--rank", "7", "--directory", str(tmp_path)]) == 1
    assert "there are: 0, 1" in capsys.readouterr().err


def test_what_is_no_report_is_said_with_the_way_to_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", str(tmp_path / "none.json")]) == 1
    assert "trainprobe run -o REPORT.json" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{}")
    assert main(["advise", str(tmp_path / "bad.json")]) == 1
    assert "is no report" in capsys.readouterr().err


def test_what_it_may_be_at_best_is_said_where_it_is_much_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    path.write_text(
        wire.encode(
            Report(
                host=Host(cpus=2),
                runs=[Run("train.py-1", [], "ann", "/", 0.0, None, {}, [a_rank(1, 0.1, 0.2, driver=0.1)])],
            )
        )
    )
    assert main(["advise", str(path)]) == 0
    out = capsys.readouterr().out
    assert "so much is safe; at best it is 50.0 s" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    assert main(["advise", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["settings"][0]["gain_at_most"] == pytest.approx(50.0)
