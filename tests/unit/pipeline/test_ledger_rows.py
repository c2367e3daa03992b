"""Rows that no step takes: how much of them is kept, and that a step gets all that was written in it."""

from __future__ import annotations

from tests.builders.driver import Driver
from trainprobe.model.cells import RowKind
from trainprobe.model.event import MarkRow, StepFile
from trainprobe.pipeline.rank.ledger import FILES, ROWS, LedgerSums


def row(driver: Driver, kind: RowKind, *inos: int) -> MarkRow:
    """A row of ``driver`` a millisecond later; it has written each of the files."""
    driver.spend(0.001)
    driver.files = {(1, ino): StepFile(1, ino, io_ns=ino, gap_ns=1, bytes=10, calls=1) for ino in inos}
    driver.row(kind)
    event = driver.events.pop()
    assert isinstance(event, MarkRow)
    return event


def test_of_rows_without_a_step_few_are_kept_and_no_time_is_lost() -> None:
    ledger, driver = LedgerSums(), Driver()
    inos = range(1, 2000)
    for ino in inos:
        ledger.add_row(row(driver, RowKind.OPTIMIZER, ino))
    assert len(ledger.rows) <= ROWS
    assert sum(len(files) for _, files in ledger.rows) <= ROWS + FILES
    ledger.add_row(last := row(driver, RowKind.OPTIMIZER))
    files = ledger.take_files(last)
    assert not ledger.rows
    assert sum(one.io_ns for one in files) == sum(inos)
    assert sum(one.calls for one in files) == len(inos)


def test_rows_without_files_are_not_kept() -> None:
    ledger, driver = LedgerSums(), Driver()
    for _ in range(ROWS):
        ledger.add_row(row(driver, RowKind.OPTIMIZER))
    assert not ledger.rows


def test_each_step_that_is_learnt_gets_its_own_files_however_often_it_fetched() -> None:
    ledger, driver = LedgerSums(), Driver()
    steps = []
    for step in range(24):
        for _ in range(512):
            ledger.add_row(row(driver, RowKind.FETCH_END, step + 1))
        ledger.add_row(one := row(driver, RowKind.OPTIMIZER, step + 1))
        steps.append(one)
    for number, one in enumerate(steps, start=1):
        (file,) = ledger.take_files(one)
        assert (file.ino, file.calls) == (number, 513)
