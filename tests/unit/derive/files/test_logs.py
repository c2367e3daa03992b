"""Logs of a run that begins one after the other: some have names, all count."""

from __future__ import annotations

from trainprobe.derive.files.logs import KEEP
from trainprobe.derive.files.saves import Saves
from trainprobe.model.event import FileEvent, FileEventKind


def write(saves: Saves, at: int, path: str, ino: int) -> None:
    opened = FileEvent(FileEventKind.OPENED, at, 1, 1, 1, ino, path, created=True, append=True, opened_ns=at)
    saves.add_event(opened)
    for kind in (FileEventKind.PROGRESS, FileEventKind.CLOSED):
        saves.add_event(
            FileEvent(
                kind, at + 1, 1, 1, 1, ino, path, bytes=10, calls=2, write_ns=3, created=True, append=True, opened_ns=at
            )
        )


def test_what_was_written_to_logs_without_names_counts_on() -> None:
    saves = Saves()
    saves.begin_steps(0)
    for number in range(1, 3 * KEEP):
        write(saves, 10 * number, f"/out/train-{number}.log", number)
        logs = [*saves.all_logs(), *saves.logs.gone.values()]
        assert (sum(log.bytes for log in logs), saves.logs.bytes) == (10 * number, 10 * number)
        assert (sum(log.writes for log in logs), sum(log.ns for log in logs)) == (2 * number, 3 * number)
    assert len(saves.all_logs()) == KEEP
    assert {log.kind for log in saves.logs.gone.values()} == {"log"}


def test_a_log_that_is_used_again_keeps_its_name() -> None:
    saves = Saves()
    saves.begin_steps(0)
    for number in range(1, 3 * KEEP):
        write(saves, 10 * number, f"/out/train-{number}.log", 2 * number)
        write(saves, 10 * number + 5, "/out/metrics.csv", 1)
    assert {log.path: log.bytes for log in saves.all_logs()}["/out/metrics.csv"] == 10 * (3 * KEEP - 1)
