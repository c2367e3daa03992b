"""`trainprobe top`: figures over time, the two screens, and the keys."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import time
from datetime import timezone
from functools import cache
from pathlib import Path

import pytest

from tests.unit.cli import reports
from tests.unit.cli.moving import SPEED, lost_until, moving
from trainprobe.cli import cells, main
from trainprobe.cli.screen import details, figures, overview
from trainprobe.cli.screen.history import Minute, RankHistory
from trainprobe.cli.screen.terminal import pieces
from trainprobe.cli.style import Style
from trainprobe.cli.top import View
from trainprobe.model.report import Counters, GpuState, Report, Warning_
from trainprobe.runtime.publishing import rundir
from trainprobe.wire import report as wire

PLAIN = Style(width=80, zone=timezone.utc)
FIRST, SECOND = ("train_0.py-00000000", "0"), ("train_1.py-00000001", "0")
ESCAPES = re.compile("\x1b\\[[0-9;]*m")


seen = cache(moving)
"""For a history, which changes no report."""


def watched(seconds: int, runs: int = 3) -> tuple[Report, RankHistory]:
    history = RankHistory()
    for at in range(seconds + 1):
        history.add_report(seen(float(at), runs))
    return moving(float(seconds), runs), history


def shown(seconds: int, runs: int = 3, style: Style = PLAIN, height: int = 24, chosen: str = FIRST[0]) -> list[str]:
    report, history = watched(seconds, runs)
    return overview.lines(report, history, overview.Choice(run=chosen), style, height)


def test_speed_is_that_of_the_last_seconds() -> None:
    _, history = watched(69)
    assert history.speed(SECOND) == pytest.approx(SPEED, abs=0.25)
    assert history.speed(FIRST) == pytest.approx(SPEED / 5, abs=0.25)  # 4 of the last 5 s stalled
    assert RankHistory().speed(FIRST) is None


def test_the_last_minute_adds_up_and_knows_what_was_lost_in_it() -> None:
    _, history = watched(75)
    minute = history.minute(FIRST, figures.PHASES)
    assert minute is not None
    assert minute.seconds == pytest.approx(60.0)
    lost = (lost_until(75.0) - lost_until(15.0)) / 60
    assert minute.lost == {"data_storage": pytest.approx(lost)}
    assert minute.productive + sum(minute.lost.values()) + sum(minute.phases.values()) == pytest.approx(1.0)
    assert minute.states["data_wait"] == pytest.approx(lost)


def test_the_sparkline_shows_each_stall_as_a_dip_and_nothing_before_the_first_look() -> None:
    _, history = watched(30)
    speeds = history.speeds(FIRST, 12)
    assert speeds[:6] == [None] * 6
    assert [round(value or 0) for value in speeds[6:]] == [8, 0, 8, 0, 8, 0]
    assert figures.sparkline([None, 0.0, 4.0, 8.0], PLAIN) == " ▁▅█"
    assert figures.sparkline([None, 0.0, 4.0, 8.0], dataclasses.replace(PLAIN, unicode=False)) == " _=#"


@pytest.mark.parametrize("cells", [65, 105, 185])
def test_the_bar_shows_when_the_minute_was_lost_and_as_much_of_it_as_was(cells: int) -> None:
    _, history = watched(75)
    timeline, minute = history.timeline(FIRST, cells), history.minute(FIRST, figures.PHASES)
    assert minute is not None
    assert timeline.count("data_storage") == pytest.approx(cells * minute.lost["data_storage"], abs=1.5)
    dips = [cell == 0 for cell in history.speeds(FIRST, cells)]
    assert sum(dip == (name == "data_storage") for dip, name in zip(dips, timeline)) >= 0.9 * cells
    assert RankHistory().timeline(FIRST, cells) == []


def test_what_is_lost_in_every_step_is_spread_over_the_bar() -> None:
    history = RankHistory()
    for at in range(61):
        report = moving(float(at), 1)
        report.runs[0].ranks[0] = dataclasses.replace(
            report.runs[0].ranks[0], productive_seconds=0.8 * at, lost={"logging": 0.2 * at}, counters=Counters()
        )
        history.add_report(report)
    bar = "".join("x" if name else "." for name in history.timeline(FIRST, 60))
    assert bar.count("x") == 12
    assert max(map(len, bar.split("x"))) <= 5


def test_an_ended_run_is_forgotten_when_the_report_forgets_it() -> None:
    _, history = watched(10)
    history.add_report(moving(11.0, runs=1))
    assert history.speed(SECOND) is None


def test_a_stall_that_goes_on_is_the_first_thing_one_sees() -> None:
    text = shown(68)
    assert text[1] == "STALLED now: train_0.py-00000000"
    row = next(line for line in text if line.startswith("> train_0"))
    assert row.endswith("STALL 3.00 s data_storage")
    panel = "\n".join(text)
    assert "for 3.00 s, data_storage: reading data from slow storage on" in panel
    assert "training thread waits for its workers ← worker 4720 in read on" in panel
    assert "in Python    __getitem__ (dataset.py:88)" in panel
    assert "to do        copy the data to a local SSD" in panel


@pytest.mark.parametrize(("lasted", "alarms"), [(0.9, False), (1.1, True)])
def test_only_a_stall_of_more_than_a_second_is_red(lasted: float, alarms: bool) -> None:
    report, history = watched(68)
    rank = report.runs[0].ranks[0]
    assert rank.stalls[-1].end is None
    rank.stalls[-1].seconds = lasted
    text = overview.lines(report, history, overview.Choice(run=FIRST[0]), Style(width=80, colour=True), 24)
    assert any("\x1b[1;31m" in line and "STALL" in line for line in text) == alarms


def test_a_large_terminal_is_filled_with_the_report_of_the_chosen_run() -> None:
    text = shown(75, style=Style(width=200), height=50)
    assert {"Where the time went", "Warnings", "Workers", "Resources"} <= set(text)
    small = shown(75, height=24)
    assert len(small) == 24
    assert small[-2].strip() not in {"Where the time went", "Warnings", "Stalls"}


def test_each_cause_has_its_block_and_colour_in_the_bar_and_beside_its_name() -> None:
    minute = Minute(22.0, 0.6, {"evaluation": 0.1}, {"swap": 0.1, "checkpoint": 0.2}, {})
    timeline = ["evaluation"] * 4 + [""] * 14 + ["checkpoint"] * 8 + [""] * 10 + ["swap"] * 4
    assert figures.minute_bar(minute, timeline, PLAIN) == "░" * 4 + "█" * 14 + "▓" * 8 + "█" * 10 + "▒" * 4
    told = " ".join(figures.minute_told(minute, PLAIN))
    assert "▓ checkpoint 20.0 %, ▒ swap 10.0 %, productive 60.0 %" in told
    painted = "\n".join(figures.minute_told(minute, dataclasses.replace(PLAIN, colour=True)))
    assert "\x1b[31m▓\x1b[0m checkpoint" in painted
    assert "\x1b[35m▒\x1b[0m swap" in painted


def test_a_path_is_shown_by_its_last_parts_where_it_is_longer_than_a_line() -> None:
    long = "checkpoint /srv/runs/hf_trainer_saves/scratch/out/checkpoint-330/model.safetensors: 322 MB"
    assert figures.shortened(long, 45) == "checkpoint …/out/checkpoint-330/model.safetensors: 322 MB"
    assert figures.shortened(long, 100) == long
    assert figures.shortened("/" + "a" * 50, 20) == "/" + "a" * 18 + "…"


def test_the_chosen_run_has_its_headroom_with_the_time_left() -> None:
    text = "\n".join(shown(64))
    assert "memory 21.0 GB of 46.0 GB (cgroup)" in text
    assert "open files 812 of 1024 FULL IN 65 min 36 s" in text  # 4000 s, 64 of them gone
    assert "GPU 0 71.0 % busy, idle for 80.0 s" in text
    assert "4 alive, 4 started so far" in text


def test_a_gpu_is_told_as_it_is_now() -> None:
    report, history = watched(70)
    gpu = GpuState(0, "GPU-1", 0.93, 61_000_000_000, 80_000_000_000)
    others = dataclasses.replace(gpu, state="lost"), dataclasses.replace(gpu, uuid="GPU-2")
    told = [dataclasses.replace(report, gpus=[one]) for one in (gpu, *others)]
    lines = []
    for one in told:
        history.add_report(one)
        rank = one.runs[0].ranks[0]
        lines.append(figures.gpus(rank, history.gpus, PLAIN))
        assert lines[-1][:50] in "\n".join(overview.body(one.runs[0], rank, history, PLAIN))
    assert lines[0] == "GPU 0 71.0 % busy, idle for 80.0 s, now 93.0 %, memory 61.0 GB of 80.0 GB"
    assert lines[1].endswith(", DOES NOT ANSWER")
    assert lines[2] == "GPU 0 71.0 % busy, idle for 80.0 s", "another GPU's figures are not its own"


def test_what_ran_out_has_no_time_left() -> None:
    rank = moving(10.0).runs[0].ranks[0]
    rank.warnings = [Warning_("shm_exhaustion", 100.0, 5.0)]
    assert figures.time_left(rank, "shm", 103.0) == 2.0
    assert figures.time_left(rank, "shm", 200.0) == 0.0
    assert figures.time_left(rank, "memory", 103.0) is None


@pytest.mark.parametrize("width", [40, 60, 80, 132, 200])
@pytest.mark.parametrize("height", [8, 24, 60])
@pytest.mark.parametrize("runs", [0, 1, 50])
def test_it_fits_every_terminal(width: int, height: int, runs: int) -> None:
    for style in (Style(width=width), Style(width=width, colour=True), Style(width=width, unicode=False)):
        text = shown(66, runs, style, height)
        assert len(text) == height
        for line in text:
            assert cells.width(ESCAPES.sub("", line)) <= width, line
        assert "quit" in text[-1] or width < 70


def test_fifty_runs_scroll_with_the_choice() -> None:
    report, history = watched(66, 50)
    choice = overview.Choice()
    seen = set()
    for row in range(50):
        overview.lines(report, history, choice, PLAIN, 24)
        choice.run = choice.rows[row]
        text = overview.lines(report, history, choice, PLAIN, 24)
        marked = [line for line in text if line.startswith("> ")]
        assert len(marked) == 1
        seen.add(marked[0].split()[1])
    assert len(seen) == 50


def test_sorted_by_loss_the_stalled_one_is_on_top() -> None:
    report, _ = watched(68)
    assert overview.ordered(report, overview.Choice())[0].run.startswith("train_2")
    assert overview.ordered(report, overview.Choice(by_loss=True))[0].run.startswith("train_0")


def test_an_old_report_and_a_missing_one_are_told() -> None:
    report, history = watched(60)
    assert (
        "nothing new for 31.0 s"
        in overview.lines(report, history, overview.Choice(), PLAIN, 24, overview.silence(31.0, PLAIN))[1]
    )
    assert overview.lines(report, history, overview.Choice(), PLAIN, 24, "the daemon is gone")[1].endswith("gone")


def test_a_source_that_is_missing_is_told_where_nothing_stalls() -> None:
    report = reports.stalled()
    report.runs = []
    text = overview.lines(report, RankHistory(), overview.Choice(), PLAIN, 24)
    assert text[1] == "! psi: the kernel does not count pressure (PSI)"
    assert "No training is seen yet" in "\n".join(text)


def test_the_details_hold_the_whole_report_and_scroll() -> None:
    report, history = watched(68)
    run = next(run for run in report.runs if run.run == FIRST[0])
    position = details.Position()
    first = details.lines(run, history, position, PLAIN, 24)
    assert "more lines below" in details.lines(run, history, position, Style(width=120), 24)[-1]
    position.line = 10_000
    last = details.lines(run, history, position, PLAIN, 24)
    assert first[1] != last[1]
    assert "open files at most" in "\n".join(last) or "Resources" in "\n".join(last)
    assert position.line < 100


def test_the_ranks_of_a_run_are_gone_through() -> None:
    run = reports.killed().runs[0]
    history, position = RankHistory(), details.Position()
    assert "details below: rank 1" in "\n".join(details.lines(run, history, position, PLAIN, 60))
    position = details.Position(rank=details.next_rank(run, position.rank))
    assert "details below: rank 0" in "\n".join(details.lines(run, history, position, PLAIN, 60))


def test_hostile_names_are_inert_and_fit() -> None:
    report, history = reports.hostile(), RankHistory()
    report.runs[0].ended = None
    history.add_report(report)
    text = overview.lines(report, history, overview.Choice(), PLAIN, 24)
    text += details.lines(report.runs[0], history, details.Position(), PLAIN, 90)
    assert any("STALL" in line for line in text)
    for line in text:
        assert line == "" or line.isprintable()


def publish(directory: Path, report: Report) -> None:
    rundir.write(str(directory / "report.json"), wire.encode(report).encode(), mode=0o640)


def test_keys(tmp_path: Path) -> None:
    view = View(tmp_path, moving(68.0), PLAIN)
    view.lines(24, 80)
    assert view.choice.run == "train_2.py-00000002"
    for key in ("down", "j", "down", "down"):
        assert view.press(key, 20)
        view.lines(24, 80)
    assert view.choice.run == FIRST[0]
    view.press("enter", 20)
    assert "python train.py" in view.lines(24, 80)[0]
    view.press("page down", 20)
    assert view.position is not None
    assert view.position.line == 20
    view.press("p", 20)
    assert view.choice.run == "train_1.py-00000001"
    view.press("back", 20)
    view.press("s", 20)
    assert view.lines(24, 80)[3].startswith("  train_0")
    view.press("?", 20)
    assert "choose a run" in view.lines(24, 80)[0]
    view.press("x", 20)
    assert view.lines(24, 80)[0].startswith("trainprobe")
    assert not view.press("q", 20)
    assert view.lines(4, 20) == ["too small"]


def test_a_daemon_that_ends_leaves_the_last_picture(tmp_path: Path) -> None:
    publish(tmp_path, moving(68.0))
    view = View(tmp_path, moving(60.0), PLAIN)
    view.refresh()
    assert view.report.generated == reports.START + 68
    (tmp_path / "report.json").unlink()
    view.refresh()
    assert view.lines(24, 80)[1].startswith("daemon gone since 08:54:28 (")
    assert "train_0" in "\n".join(view.lines(24, 80))


def test_a_daemon_that_hangs_is_told_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    silent = dataclasses.replace(moving(68.0), generated=time.time() + 3600, generated_monotonic=time.monotonic() - 60)
    assert "is the daemon alive?" in View(tmp_path, silent, PLAIN).lines(24, 80)[1]
    alive = dataclasses.replace(silent, generated=time.time() - 3600, generated_monotonic=time.monotonic())
    assert "is the daemon alive?" not in View(tmp_path, alive, PLAIN).lines(24, 80)[1]


def test_once_prints_one_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path, moving(68.0))
    assert main(["top", "--once", "--run", "train_0", "--directory", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "> train_0.py" in out
    assert "\x1b" not in out


def test_without_a_terminal_it_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path, moving(68.0))
    assert main(["top", "--directory", str(tmp_path)]) == 1
    assert "top --once" in capsys.readouterr().err
    assert main(["top", "--directory", str(tmp_path / "none")]) == 1
    assert "systemctl start trainprobe" in capsys.readouterr().err
    assert main(["top", "--run", "other", "--directory", str(tmp_path)]) == 1
    assert "train_0.py-00000000" in capsys.readouterr().err


def test_colour_codes_become_pieces() -> None:
    line = "a" + Style(colour=True).paint("b", "bold", "red") + "c"
    assert list(pieces(line)) == [("a", ()), ("b", ("1", "31")), ("c", ())]


def test_cells_measure_what_a_terminal_shows() -> None:
    assert cells.width("训练 x") == 6
    assert cells.cut("训练停顿", 5) == "训练…"
    assert cells.pad("训练", 6) == "训练  "
    for line in cells.wrap("训练在每三百步停顿一次，因为 checkpoint 写入很慢。", 20, "- ", "  "):
        assert cells.width(line) <= 20
    assert cells.wrap("x" * 30, 12, "", "") == ["x" * 12, "x" * 12, "x" * 6]


@pytest.mark.parametrize("width", [40, 60, 66, 72, 80, 120, 200])
def test_the_keys_are_whole_and_the_hidden_lines_come_first(width: int) -> None:
    report, history = watched(68)
    style = Style(width=width)
    run = next(run for run in report.runs if run.run == FIRST[0])
    foot = details.lines(run, history, details.Position(), style, 24)[-1]
    assert "more lines below" in foot.split(" · ")[0]
    assert set(foot.split(" · ")[1:]) <= set(details.KEYS)
    assert set(shown(66, 3, style)[-1].split(" · ")) <= set(overview.KEYS)


def test_what_tells_runs_apart_is_never_cut() -> None:
    for width in (60, 66, 80):
        text = "\n".join(shown(66, 3, Style(width=width)))
        for number in range(3):
            assert f"-{number:08x} " in text.partition("──")[0], width
    assert "train_0.py-00000000 " in shown(66, 3, PLAIN)[5]


def test_a_healthy_run_fills_a_large_terminal_with_its_speed() -> None:
    text = shown(66, 3, Style(width=200), 50, SECOND[0])
    title = text.index("it/s in the last minute")
    assert text[title + 1].split()[0] == "8.00"
    assert sum(line == "" for line in text) < 10
    (speed,) = [line for line in text if line.startswith(" it/s")]
    assert len(speed) > 190
    assert any("memory 21.0 GB" in line and "open files 812" in line for line in text)


def test_the_column_says_of_what_time_its_share_is() -> None:
    assert "LOST 1m" in shown(66)[2]
    report = moving(66.0)
    history = RankHistory()
    history.add_report(report)
    assert "LOST 1m" not in overview.lines(report, history, overview.Choice(), PLAIN, 24)[2]


def test_a_daemon_that_was_killed_is_gone_though_its_report_stays(tmp_path: Path) -> None:
    publish(tmp_path, moving(68.0))
    view = View(tmp_path, moving(60.0), PLAIN)
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    view.refresh()
    assert not view.trouble
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / "lock").write_text(f"{ended.pid}\n")
    view.refresh()
    assert view.lines(24, 80)[1] == "daemon gone since 08:54:28 (its process has ended)"
