from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.exporters.reports import NOW, a_report, a_run
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Report
from trainprobe.wire.report import decode, encode
from trainprobe_exporters.source import MAX_BYTES, SnapshotError, SnapshotReader


def at(wall: float, monotonic: float = 1000.0) -> Moment:
    return Moment(round(monotonic * NS), round(wall * NS))


def publish(path: Path, report: Report) -> None:
    """As the daemon does: a new file, then rename."""
    new = path.with_name("new")
    new.write_text(encode(report))
    new.rename(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.json"


@pytest.fixture
def source(path: Path) -> SnapshotReader:
    return SnapshotReader(path, decode)


def test_absence_says_what_to_do(source: SnapshotReader) -> None:
    look = source.read(at(NOW))
    assert (look.report, look.is_new) == (None, False)
    assert "is absent: the daemon does not run (start it: " in look.problem


def test_a_snapshot_is_read_once_until_it_is_replaced(source: SnapshotReader, path: Path) -> None:
    publish(path, a_report(at=NOW))
    assert [source.read(at(NOW)).is_new for _ in range(3)] == [True, False, False]
    publish(path, a_report(at=NOW + 1))
    look = source.read(at(NOW + 1))
    assert look.is_new
    assert look.report == a_report(at=NOW + 1)
    assert look.problem == ""
    assert source.read_seconds is not None


@pytest.mark.parametrize(("runs", "limit"), [([a_run()], 45), ([], 45)])
def test_a_report_grows_stale(source: SnapshotReader, path: Path, runs: list[object], limit: int) -> None:
    """Twice as old as reports ever become while the daemon lives."""
    publish(path, a_report(*runs, at=NOW))  # type: ignore[arg-type]
    assert source.read(at(NOW + limit)).problem == ""
    look = source.read(at(NOW + limit + 1))
    assert look.problem.startswith(f"the latest report is {limit + 1} s old")
    assert look.report is not None


def test_a_clock_that_was_set_back_makes_nothing_stale(source: SnapshotReader, path: Path) -> None:
    publish(path, a_report(at=NOW))
    assert source.read(at(NOW - 3600)).problem == ""


@pytest.mark.parametrize("wall", [NOW - 3600, NOW, NOW + 3600])
def test_a_clock_that_was_set_makes_nothing_fresh_and_nothing_stale(
    source: SnapshotReader, path: Path, wall: float
) -> None:
    publish(path, replace(a_report(at=NOW), generated_monotonic=1000.0))
    assert source.read(at(wall, 1000.0 + 45)).problem == ""
    look = source.read(at(wall, 1000.0 + 46))
    assert look.problem.startswith("the latest report is 46 s old")
    assert look.now == NOW + 46, "the series of a daemon that died leave by the same clock"


def test_a_report_of_an_earlier_boot_is_as_old_as_unix_time_says(source: SnapshotReader, path: Path) -> None:
    publish(path, replace(a_report(at=NOW), generated_monotonic=1000.0))
    assert source.read(at(NOW + 300, 10.0)).problem.startswith("the latest report is 5 min old")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"version": 2}', b"\xff\xfe", b"[" * 100_000, b"null"])
def test_a_broken_snapshot_is_told_and_the_last_report_stays(
    source: SnapshotReader, path: Path, content: bytes
) -> None:
    publish(path, a_report(at=NOW))
    source.read(at(NOW))
    path.with_name("new").write_bytes(content)
    path.with_name("new").rename(path)
    for _ in range(2):
        look = source.read(at(NOW))
        assert look.report == a_report(at=NOW)
        assert not look.is_new
        assert "holds no report" in look.problem
    assert source.errors == 1, "a broken file is read once, not at each scrape"
    publish(path, a_report(at=NOW + 1))
    assert source.read(at(NOW)).problem == ""


def test_the_daemons_end_and_return(source: SnapshotReader, path: Path) -> None:
    publish(path, a_report(at=NOW))
    source.read(at(NOW))
    path.unlink()
    look = source.read(at(NOW))
    assert "is absent" in look.problem
    assert look.report is not None
    publish(path, a_report(at=NOW + 1))
    look = source.read(at(NOW + 1))
    assert (look.is_new, look.problem) == (True, "")


def test_a_file_too_large_is_not_read_into_memory(source: SnapshotReader, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert f"larger than {MAX_BYTES} bytes" in source.read(at(NOW)).problem


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.mkdir()


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [a_pipe, a_directory, a_dangling_link])
def test_what_is_no_file_is_told_and_nothing_hangs(source: SnapshotReader, path: Path, make: object) -> None:
    make(path)  # type: ignore[operator]
    before = len(os.listdir("/proc/self/fd"))
    assert source.read(at(NOW)).problem
    with pytest.raises(SnapshotError):
        source.text()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def as_nobody() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_snapshot_that_may_not_be_read_says_which_group_may(
    source: SnapshotReader, path: Path, as_nobody: None
) -> None:
    euid = os.geteuid()
    os.seteuid(0) if os.getuid() == 0 else None
    publish(path, a_report(at=NOW))
    path.chmod(0)
    for directory in path.parents[:3]:
        directory.chmod(directory.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    os.seteuid(euid)
    assert "run the exporter in the group trainprobe" in source.read(at(NOW)).problem
