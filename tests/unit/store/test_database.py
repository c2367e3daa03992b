"""The SQLite file: what is written is there, older schemas come along, newer ones and damaged files are told."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainprobe.store import schema
from trainprobe.store.database import Database, damaged, move_aside
from trainprobe.store.records import (
    WAITING,
    Batch,
    Listed,
    RankRow,
    RunRow,
    StallRow,
    StepsRow,
)

RUN = "train.py-3f2a91c0"
NOW = 1_763_000_000.0


def batch(number: int = 0, *, run: str = RUN, ended: float | None = None, told: float = NOW) -> Batch:
    made = Batch()
    made.runs[run] = RunRow(run, 1000, NOW - 500, ended, told, f'{{"n": {number}}}')
    made.ranks[run, "0"] = RankRow(run, "0", f'{{"n": {number}}}', None)
    for index in range(number + 1):
        name = f"{run}-{index}"
        made.stalls[name] = StallRow(name, run, "0", NOW + index, NOW + index + 1, 1.0, "checkpoint", "{}" + " " * 500)
    made.lists["warnings", run, "0"] = tuple(Listed("swap", NOW, f'"{n}"') for n in range(number + 1))
    made.add_steps([StepsRow(run, "0", "10s", NOW + 10 * number, 10.0, 200, 0.04, 0.06, "{}")])
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


def test_what_was_written_is_there_after_a_restart(path: Path) -> None:
    first = Database(path)
    first.write(batch(3))
    first.close()
    second = Database(path)
    assert [row.run for row in second.runs()] == [RUN]
    (rank,) = second.ranks(RUN)
    assert len(rank.stalls) == 4
    assert rank.lists["warnings"] == ('"0"', '"1"', '"2"', '"3"')
    assert rank.lists["checkpoints"] == ()
    assert second.last_steps(RUN, "0", "10s") == (NOW + 30, 10.0, 200, 0.04, 0.06, "{}")
    second.close()


def test_the_file_is_roots_alone(path: Path) -> None:
    """Owner only, and nobody else can open it while it is in use."""
    database = Database(path)
    database.write(batch())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.with_name("history.sqlite-shm").exists()
    other = sqlite3.connect(path, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("SELECT * FROM runs").fetchall()
    other.close()
    database.close()


def test_a_link_in_its_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Database(path)
    assert not (tmp_path / "elsewhere").exists()


def test_what_waits_for_a_disk_is_bounded(path: Path) -> None:
    """Hours of a full disk: the latest is kept, and the memory for it is not more than some megabytes."""
    held = Batch()
    for number in range(6000):
        later = Batch()
        later.stalls[str(number)] = StallRow(str(number), RUN, "0", NOW + number, NOW + number + 1, 1.0, "swap", "")
        held.then(later)
    assert len(held.stalls) == WAITING
    assert list(held.stalls)[-1] == "5999"


def test_an_open_stall_that_was_none_after_all_leaves(path: Path) -> None:
    database = Database(path)
    opened = Batch()
    opened.stalls["a"] = StallRow("a", RUN, "0", NOW, None, 0.5, "unknown", "a")
    opened.stalls["b"] = StallRow("b", RUN, "0", NOW - 9, NOW - 8, 1.0, "swap", "b")
    opened.open_stalls[RUN, "0"] = ("a",)
    opened.ranks[RUN, "0"] = RankRow(RUN, "0", "{}", None)
    database.write(opened)
    over = Batch()
    over.open_stalls[RUN, "0"] = ()
    database.write(over)
    assert database.ranks(RUN)[0].stalls == ("b",)
    database.close()


def test_a_batch_is_kept_whole_or_not_at_all(path: Path) -> None:
    database = Database(path)
    database.write(batch(1))
    wrong = batch(2)
    wrong.add_steps([StepsRow(RUN, "0", "10s", NOW, 10.0, 200, 0.04, 0.06, None)])  # type: ignore[arg-type]
    with pytest.raises(sqlite3.IntegrityError):
        database.write(wrong)
    assert len(database.ranks(RUN)[0].stalls) == 2
    database.close()


LATER = (*schema.MIGRATIONS, ("ALTER TABLE runs ADD COLUMN note TEXT", "CREATE TABLE notes (text TEXT)"))


def test_a_file_of_an_older_schema_comes_along(path: Path) -> None:
    older = Database(path)
    older.write(batch(2))
    older.close()
    newer = Database(path, LATER)
    assert schema.version(newer._connection) == len(LATER)
    assert [row.run for row in newer.runs()] == [RUN]
    newer.close()


def test_a_migration_that_fails_leaves_the_old_file(path: Path) -> None:
    Database(path).close()
    with pytest.raises(sqlite3.OperationalError):
        Database(path, (*LATER[:-1], (*LATER[-1], "CREATE TABLE notes (text TEXT)")))
    Database(path).close()
    Database(path, LATER).close()


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    Database(path, LATER).close()
    before = path.read_bytes()
    with pytest.raises(schema.NewerSchemaError, match="has schema 2, this version knows up to 1") as told:
        Database(path)
    assert told.value.aside.startswith(f"mv {path} ")
    assert path.read_bytes() == before


def test_no_database_at_all_is_damage(path: Path) -> None:
    path.write_bytes(b"not a database, by any means" * 100)
    with pytest.raises(sqlite3.DatabaseError) as told:
        Database(path)
    assert damaged(told.value)


def written(path: Path) -> dict[str, bytes]:
    """The database and its log while it is open; written at the first call."""
    original = path.with_name("original.sqlite")
    kept = {name: original.with_name(f"kept{name}") for name in ("", "-wal")}
    if not original.exists():
        database = Database(original)
        for number in range(4):
            database.write(batch(number))
        for name, copy in kept.items():
            copy.write_bytes(original.with_name(original.name + name).read_bytes())
        database.close()
    return {name: copy.read_bytes() for name, copy in kept.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_torn_copies_are_read_or_are_damage(path: Path, data: st.DataObject) -> None:
    """A copy cut anywhere, with blocks overwritten: rows that were written, or an error that says damaged. No crash."""
    copies = written(path)
    copy = path.with_name("copy.sqlite")
    for name, content in copies.items():
        torn = bytearray(content)
        for _ in range(data.draw(st.integers(0, 3))):
            if torn:
                at = data.draw(st.integers(0, len(torn) - 1))
                torn[at : at + 512] = data.draw(st.binary(min_size=1, max_size=512))
        torn = torn[: data.draw(st.integers(0, len(torn)))] if data.draw(st.booleans()) else torn
        copy.with_name(copy.name + name).write_bytes(torn)
    try:
        opened = Database(copy)
    except (sqlite3.Error, schema.NewerSchemaError) as error:
        # An overwritten header may well claim a later version: that is told, and the file left to a person.
        claims = isinstance(error, schema.NewerSchemaError) or damaged(error)
        assert claims or "readonly" in str(error), error
        aside = move_aside(copy, 1)
        assert aside.exists()
        opened = Database(copy)
    try:
        for row in opened.runs():
            for rank in opened.ranks(row.run):
                assert len(rank.stalls) <= 4
        opened.write(batch(1))
    except sqlite3.Error as error:
        assert damaged(error), error
    opened.close()
    for left in copy.parent.glob("copy.sqlite*"):
        left.unlink()


def test_few_damaged_files_are_kept(path: Path) -> None:
    for stamp in range(5):
        path.write_bytes(b"x")
        path.with_name("history.sqlite-wal").write_bytes(b"y")
        move_aside(path, stamp)
    assert sorted(found.name for found in path.parent.iterdir()) == [
        "history.sqlite.damaged-3",
        "history.sqlite.damaged-3-wal",
        "history.sqlite.damaged-4",
        "history.sqlite.damaged-4-wal",
    ]


def test_of_each_user_the_latest_runs_are_found_first(path: Path) -> None:
    database = Database(path)
    made = Batch()
    ends = [(1, NOW), (1, NOW + 9), (1, None), (1, NOW + 8), (2, NOW - 9), (2, NOW - 8)]
    for number, (uid, ended) in enumerate(ends):
        made.runs[str(number)] = RunRow(str(number), uid, NOW, ended, NOW + 1, "{}")
    database.write(made)
    assert {row.run for row in database.latest_of_each(2)} == {"2", "5"}
    assert {row.run for row in database.latest_of_each(4)} == {"2", "5", "1", "4"}
    assert [run for run, *_ in database.run_names(uid=1, limit=3)] == ["1", "3", "2"]
    database.close()


def test_what_is_old_is_forgotten_and_its_room_comes_back(path: Path) -> None:
    database = Database(path)
    for number in range(20):
        database.write(batch(40, run=f"r-{number:08x}", ended=NOW + number, told=NOW + number))
    database.give_back()
    size = path.stat().st_size
    assert len(database.forget_runs(NOW + 15)) == 15
    database.forget_steps({"10s": NOW + 1e6})
    database.forget_stalls(NOW + 1e6)
    database.give_back()
    assert len(database.runs()) == 5
    assert database.last_steps("r-00000013", "0", "10s") is None
    assert path.stat().st_size < size / 3
    database.close()
