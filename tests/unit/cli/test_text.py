"""What a person reads. The golden files are written anew with TRAINPROBE_GOLDEN=write; look at the difference."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from datetime import timezone
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.unit.cli import reports
from tests.unit.wire import strategies
from trainprobe.cli import cells, observe
from trainprobe.cli.style import Style, inert
from trainprobe.cli.text import live_line, text_of
from trainprobe.model import amounts
from trainprobe.model.report import Change, Checkpoint, Evidence, Framework, Memory, Report
from trainprobe.text.render import Speaker

GOLDEN = Path(__file__).with_name("golden")
WIDE = Style(zone=timezone.utc)
STYLES = {
    "wide": WIDE,
    "narrow": Style(width=60, zone=timezone.utc),
    "colour": Style(width=80, colour=True, zone=timezone.utc),
    "ascii": Style(unicode=False, zone=timezone.utc),
}
ESCAPES = re.compile("\x1b\\[[0-9;]*m")


@pytest.mark.parametrize("look", STYLES)
@pytest.mark.parametrize("make", [reports.stalled, reports.healthy, reports.killed, reports.hostile])
def test_golden(make: Callable[[], Report], look: str) -> None:
    text = text_of(make(), STYLES[look]) + "\n"
    path = GOLDEN / f"{make.__name__}.{look}.txt"
    if os.environ.get("TRAINPROBE_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_first_three_lines_say_what_matters() -> None:
    first, second, third = text_of(reports.stalled(), WIDE).splitlines()[:3]
    assert first == "12.1 % lost: 37.7 s of 5 min 12 s, most to checkpoint (24.1 s)"
    assert "every 300 steps: fsync of 340 MB" in second
    assert third.startswith("1742 steps · 5.92 it/s")


def test_an_end_outranks_seconds() -> None:
    assert text_of(reports.killed(), WIDE).startswith("ENDED by oom_kill\nworker 99 was killed for want of memory")


@pytest.mark.parametrize(
    ("peak", "told"),
    [
        (580_000_000, "memory 580 MB at most of 587 MB (cgroup)"),
        (669_000_000, "memory 669 MB at most with mapped files; limit 587 MB (cgroup)"),
    ],
)
def test_no_part_is_larger_than_its_whole(peak: int, told: str) -> None:
    """Pages of libraries that another cgroup has read first are the process's and not of its cgroup's limit."""
    report = reports.stalled()
    report.runs[0].ranks[0].memory = Memory(peak, peak, limit_bytes=587_000_000, limit_scope="cgroup")
    assert told in text_of(report, Style(width=200, zone=timezone.utc))


def test_productive_phases_and_lost_add_up_before_the_readers_eyes() -> None:
    block = text_of(reports.stalled(), WIDE).partition("Where the time went\n")[2].partition("\n\n")[0]
    shares = [float(share) for share in re.findall(r"([\d.]+) %  (?:phase|lost|    ) *  █", block)]
    assert sum(shares) == pytest.approx(100, abs=0.3)


@pytest.mark.parametrize("look", STYLES)
def test_no_line_is_wider_than_the_terminal(look: str) -> None:
    chosen = STYLES[look]
    for make in (reports.stalled, reports.killed, reports.healthy):
        for line in ESCAPES.sub("", text_of(make(), chosen)).splitlines():
            assert len(line) <= chosen.width, line


@given(strategies.of_class(Report))
@settings(max_examples=60, deadline=None)
def test_any_report_gives_inert_text(report: Report) -> None:
    """Whatever strangers write: no control characters, no broken lines, nothing that cannot be printed."""
    for look in (WIDE, STYLES["narrow"]):
        for line in text_of(report, look).split("\n"):
            assert not line or line.isprintable()
            line.encode("utf-8")
    assert live_line(report, WIDE).isprintable()


def test_ascii_is_ascii_but_for_the_separators() -> None:
    text = text_of(reports.stalled(), STYLES["ascii"])
    assert "█" not in text
    assert "└" not in text


@pytest.mark.parametrize(
    ("source", "counted", "told"),
    [
        ("autograd", True, " it/s"),
        ("gpu", True, " steps · by its calls of CUDA · "),
        ("rhythm", True, " steps · by the rhythm of its calls · "),
        ("rhythm", False, "no steps: no libtorch mapped"),
    ],
)
def test_by_what_the_steps_are_known(source: str, counted: bool, told: str) -> None:
    report = reports.stalled()
    steps = report.runs[0].ranks[0].steps
    steps.source, steps.reason = source, "no libtorch mapped"
    steps.count *= counted
    text = text_of(report, WIDE)
    assert told in text
    assert ("CUDA" in text) == (source == "gpu")
    assert (" it/s" in text) == counted


@pytest.mark.parametrize(("version", "told"), [("5.23.0", "transformers 5.23.0"), (None, "transformers")])
def test_the_framework_stands_beside_the_process(version: str | None, told: str) -> None:
    report = reports.stalled()
    rank = report.runs[0].ranks[0]
    assert "transformers" not in text_of(report, WIDE)
    rank.framework = Framework("transformers", version)
    assert f"pid {rank.pid} · {told} ·" in text_of(report, WIDE)


def test_files_that_took_no_time_are_left_out() -> None:
    report = reports.stalled()
    report.runs[0].ranks[0].logs[0].seconds = 0.2
    report.runs[0].ranks[0].slow_files[0].seconds = 0.3
    assert "Files" not in text_of(report, WIDE)


@pytest.mark.parametrize(("reads", "seconds", "told"), [(1, 2.0, False), (1, 9.0, True), (5, 2.0, True)])
def test_a_file_that_one_look_found_read_is_not_told_as_seconds(reads: int, seconds: float, told: bool) -> None:
    """Its seconds are an estimate by looks at the threads."""
    report = reports.stalled()
    file = report.runs[0].ranks[0].slow_files[0]
    file.reads, file.seconds = reads, seconds
    said = f"{file.path} ({reads} {'read' if reads == 1 else 'reads'})"
    assert (said in text_of(report, WIDE)) == told


def test_a_report_without_runs_says_so() -> None:
    assert text_of(Report(), WIDE).startswith("No training was seen.")


def test_the_live_line() -> None:
    assert live_line(reports.stalled(), WIDE) == (
        "trainprobe STALL 3.25 s: data_storage · lost 37.7 s, most to checkpoint"
    ), "what has no room in 80 columns is left out"
    calm = reports.stalled()
    calm.runs[0].ranks[0].stalls = []
    assert live_line(calm, WIDE) == "trainprobe lost 37.7 s, most to checkpoint · startup · step 1742 · 5.92 it/s"
    assert "waiting" in live_line(Report(), WIDE)


@pytest.mark.parametrize("language", ["../../../tmp", "fr", ""])
def test_a_callers_language_that_is_none_is_english(language: str) -> None:
    assert observe._text(Report(), {"language": language}).startswith("No training was seen.")


def test_the_live_line_in_chinese() -> None:
    chinese = Style(speaker=Speaker("zh"))
    line = live_line(reports.stalled(), chinese)
    assert line == "trainprobe 停顿 3.25 s：data_storage · 浪费 37.7 s，最多的是 checkpoint · 启动"
    assert cells.width(line) <= 79
    assert live_line(Report(), chinese) == "trainprobe：等待训练开始"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 ms"), (0.00031, "310 us"), (0.412, "412 ms"), (0.9996, "1.00 s"), (5.921, "5.92 s"), (9.999, "10.0 s"),
        (119.94, "119.9 s"), (120.0, "2 min 00 s"), (312.4, "5 min 12 s"), (11_520.0, "3 h 12 min"),
    ],
)  # fmt: skip
def test_durations(value: float, text: str) -> None:
    assert amounts.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (340e6, "340 MB"), (1.2e9, "1.2 GB"), (5e15, "5000 TB")],
)
def test_sizes(value: float, text: str) -> None:
    assert amounts.size(value) == text


def test_inert_keeps_what_is_harmless() -> None:
    assert inert("Ärger/模型.pt") == "Ärger/模型.pt"
    assert inert("a\x1b[0m\u202eb") == "a\\x1b[0m\\u202eb"
    assert inert("x" * 500).endswith("…")


class Stream:
    def __init__(self, terminal: bool, encoding: str = "utf-8") -> None:
        self.terminal, self.encoding = terminal, encoding

    def isatty(self) -> bool:
        return self.terminal

    def fileno(self) -> int:
        raise OSError(25, "not a terminal")


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_terminals(terminal: bool, environment: dict[str, str], colour: bool) -> None:
    made = Style.of(Stream(terminal), environment)  # type: ignore[arg-type]
    assert (made.colour, made.width) == (colour, 100)
    assert dataclasses.replace(made, colour=True).paint("x", "red") == "\x1b[31mx\x1b[0m"


@pytest.mark.parametrize("more", [0.0, 0.0002])
def test_a_share_that_rounds_to_nothing_is_not_told(more: float) -> None:
    report = reports.stalled()
    longest = max(report.runs[0].ranks[0].stalls, key=lambda stall: stall.seconds)
    longest.shares = {"checkpoint": longest.seconds, "cpu_bound": more}
    assert "shares:" not in text_of(report, WIDE)
    longest.shares["unknown"] = 0.1
    assert re.search(r"shares: checkpoint [0-9.]+ s, unknown 100 ms\n", text_of(report, WIDE))


def checkpoints_of(files: list[Checkpoint], saves: int, written: int) -> list[str]:
    """The lines of the checkpoints' part."""
    report = reports.stalled()
    rank = report.runs[0].ranks[0]
    rank.checkpoints, rank.totals.saves, rank.totals.checkpoints = files, saves, written
    rank.counters.checkpoint_seconds = {"write/true": 30.0, "write/false": 9.0}
    return text_of(report, WIDE).partition("Checkpoints\n")[2].partition("\n\n")[0].splitlines()


def test_the_files_of_one_save_are_one_line() -> None:
    """As trainers write them: weights, optimizer and scheduler one after the other, and that every hundred steps."""
    files = [
        Checkpoint(f"/run/checkpoint-{100 * save}/{name}", at, at + lasts, size, lasts, write_seconds=lasts, save=save)
        for save, at in ((1, 50.0), (2, 90.0))
        for name, at, lasts, size in (
            ("model.safetensors", at, 0.5, 100_000_000),
            ("optimizer.pt", at + 0.51, 1.0, 200_000_000),
            ("scheduler.pt", at + 1.52, 0.001, 1000),
        )
    ]
    files.append(Checkpoint("/run/last.pt", 95.0, 95.2, 1000, 0.2, save=3))
    first, *rows = checkpoints_of(files, 3, 7)
    assert first == "  3 saves, 7 files in all; the training waited 24.1 s for them"
    assert re.search(r" 1\.52 s +300 MB  /run/checkpoint-100/optimizer\.pt and 2 more \(write 1\.50 s", rows[0])
    assert [row for row in rows if "/run/last.pt (" in row] == [rows[-1]]


def test_of_a_save_below_one_directory_that_is_named() -> None:
    """As orbax does: the driver's file lasts as long as the save, those of its threads lie below and overlap. Of the
    first save the list has lost files."""
    files = [
        Checkpoint(
            f"/run/save-{save}/{name}", at + late, at + late + lasts, size, lasts, by=by, outcome="complete", save=save
        )
        for save, at in ((7, 50.0), (8, 54.0), (9, 58.0))
        for name, late, lasts, size, by in (
            ("_CHECKPOINT_METADATA", 0.0, 0.42, 100, "driver"),
            ("ocdbt.process_0/d/73f7b3", 0.05, 0.02, 1000, "thread"),
            ("ocdbt.process_0/manifest.ocdbt", 0.32, 0.01, 100, "thread"),
        )
    ]
    lines = checkpoints_of(files, 9, 600)
    assert lines[0] == "  9 saves, 600 files in all, the latest 2 of them; the training waited 30.0 s for them"
    assert [line[10:] for line in lines[1:]] == [
        f"     420 ms    1.2 kB  /run/save-{save}: 3 files (by a helper thread)" for save in (8, 9)
    ]


def test_shares_and_outcomes_are_told_in_words() -> None:
    report = reports.stalled()
    rank = report.runs[0].ranks[0]
    rank.stalls[0].evidence.append(Evidence("periods throttled", 0.5, "ratio"))
    rank.stalls = rank.stalls[:1]
    rank.checkpoints = [Checkpoint("/run/a.pt", 50.0, 51.0, 1000, 1.0, serialize_seconds=0.5, outcome="unsafe")]
    assert "periods throttled 50.0 %" in " ".join(text_of(report, WIDE).split())
    told = " ".join(text_of(report, dataclasses.replace(WIDE, speaker=Speaker("zh"))).split())
    assert "序列化 500 ms，不安全" in told


def test_all_of_what_is_lost_is_said_once() -> None:
    """ "most to", with the same seconds again, reads as if there were more."""
    report = reports.stalled()
    rank = report.runs[0].ranks[0]
    rank.lost = {"checkpoint": 37.7}
    assert text_of(report, WIDE).splitlines()[0] == "12.1 % lost: 37.7 s of 5 min 12 s, all to checkpoint"


def test_what_hardly_costs_anything_is_not_to_be_done_anything_about() -> None:
    """A cause below 1 % of the run has no advice, unless it is the verdict's or was warned of."""
    report = reports.stalled()
    rank = report.runs[0].ranks[0]
    rank.changes = [Change(cause, [f"mend {cause}"]) for cause in ("checkpoint", "logging", "gc_pause")]
    rank.lost = {"checkpoint": 30.0, "logging": 3.5, "gc_pause": 0.05}
    text = text_of(report, WIDE)
    assert "logging: mend logging" in text
    assert "gc_pause: mend gc_pause" not in text


def test_sentences_name_causes_and_states_in_the_reader_s_language() -> None:
    chinese, english = Style(speaker=Speaker("zh")), Style()
    assert [english.cause("cpu_bound"), english.state("runqueue")] == ["cpu_bound", "runqueue"]
    assert chinese.cause("cpu_bound") == "CPU 上的 Python 计算 [cpu_bound]"
    assert chinese.state("runqueue") == "等待分到 CPU"
    assert [chinese.cause("of_a_later_version"), chinese.state("of_another")] == ["of_a_later_version", "of_another"]
    head = text_of(reports.stalled(), chinese)
    assert f"[{next(iter(reports.stalled().runs[0].ranks[0].lost))}]" in head.splitlines()[0]
