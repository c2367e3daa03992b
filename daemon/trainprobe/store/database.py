"""The SQLite file: opened by the daemon alone, written in batches, never fatal.

WAL with ``synchronous=FULL``: a batch that was written is on the disk, and one that a kill or a power cut tears is not
there at all. A file that cannot be read is moved aside, with its name told, and a new one is begun.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

from trainprobe.store.records import LISTS, Batch, RankFound, RunRow
from trainprobe.store.schema import MIGRATIONS, migrate, refuse_newer

CHECKED_BYTES = 64 << 20  # a file up to this size is read through when it is opened
SYNCHRONOUS = "FULL"  # a batch that was written survives a power cut, too
ASIDE = 2  # damaged files that are kept
COMPANIONS = ("", "-wal", "-shm", "-journal")
LATEST = 200
StepsFound = tuple[float, float, int, float, float, str]  # start, seconds, count, min, max, states
RunName = tuple[str, int | None, float | None]  # name, user, end
_RUN = "run, uid, started, ended, told, body"
_PUT_RANK = """
INSERT INTO ranks VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET body = excluded.body, kept = coalesce(excluded.kept, kept)
"""
_BY_RUN = ("ranks", "stalls", *LISTS, "steps", "recent_steps")


class Database:
    """One open file. Every method raises sqlite3.Error; ``damaged`` says which of these mean the file itself."""

    def __init__(self, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
        """Raises NewerSchemaError, sqlite3.Error and OSError."""
        self.path = path
        self._refuse_strange(path)
        self._connection = _connect(path)
        try:
            self._prepare(migrations)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, migrations: Sequence[Sequence[str]]) -> None:
        connection = self._connection
        refuse_newer(connection, self.path, migrations)  # before anything of it is changed
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # nobody else reads it, and there is no -shm file
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        connection.execute("PRAGMA cache_size = -1024")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        connection.execute("PRAGMA trusted_schema = OFF")
        if self.path.stat().st_size <= CHECKED_BYTES:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(f"database disk image is malformed: {found}")
        migrate(connection, migrations)

    @staticmethod
    def _refuse_strange(path: Path) -> None:
        """Make the file ours to begin with; never follow a link that somebody put in its place."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.close(descriptor)

    def close(self) -> None:
        self._connection.close()

    @property
    def bytes(self) -> int:
        """What the data takes, without pages that wait to be used again."""
        names = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        return int((pages - free) * size)

    # Writing

    def write(self, batch: Batch) -> None:
        """All of it, or nothing."""
        with self._transaction() as execute:
            _put(execute, "runs", batch.runs.values())
            execute.executemany(_PUT_RANK, map(astuple, batch.ranks.values()))
            for (run_name, rank_name), ids in batch.open_stalls.items():
                marks = ", ".join("?" * len(ids))
                execute.execute(
                    f'DELETE FROM stalls WHERE run = ? AND rank = ? AND "end" IS NULL AND id NOT IN ({marks})',
                    (run_name, rank_name, *ids),
                )
            _put(execute, "stalls", batch.stalls.values())
            for (name, run_name, rank_name), entries in batch.lists.items():
                execute.execute(f"DELETE FROM {_list(name)} WHERE run = ? AND rank = ?", (run_name, rank_name))
                execute.executemany(
                    f"INSERT INTO {_list(name)} VALUES (?, ?, ?, ?, ?, ?)",
                    [(run_name, rank_name, n, entry.cause, entry.time, entry.body) for n, entry in enumerate(entries)],
                )
            _put(execute, "steps", batch.steps.values())

    # Reading

    def runs(self, *, live: bool = False) -> list[RunRow]:
        """Runs, the latest first; ``live``: those whose end is not known."""
        found = self._connection.execute(
            f"SELECT {_RUN} FROM runs WHERE ended IS NULL OR NOT ? ORDER BY coalesce(ended, told) DESC", (live,)
        )
        return [RunRow(*row) for row in found]

    def run_names(self, *, uid: int | None = None, limit: int = -1) -> Iterator[RunName]:
        """Runs without their bodies, the latest first; ``uid``: those of one user."""
        return self._connection.execute(
            "SELECT run, uid, ended FROM runs WHERE uid = ? OR ? ORDER BY coalesce(ended, told) DESC LIMIT ?",
            (uid, uid is None, limit),
        )

    def latest_of_each(self, limit: int) -> Iterator[RunRow]:
        """So many runs at most, as many of one user as of another: first the latest of each, then those before."""
        order = "ended IS NOT NULL, coalesce(ended, told) DESC"
        names = self._connection.execute(
            f"SELECT run FROM (SELECT run, row_number() OVER (PARTITION BY uid ORDER BY {order}) AS nth FROM runs) "
            "ORDER BY nth LIMIT ?",
            (limit,),
        ).fetchall()
        yield from self._rows(names)

    def last_ended_of_jobs(self, jobs: Sequence[str]) -> Iterator[RunRow]:
        """Of each user's jobs that the body of an ended run names, the one that ended last. Reads all bodies."""
        job = "CASE WHEN json_valid(body) THEN json_extract(body, '$.job') END"
        names = self._connection.execute(
            f"SELECT run FROM (SELECT run, row_number() OVER (PARTITION BY uid, {job} ORDER BY ended DESC) AS nth "
            f"FROM runs WHERE ended IS NOT NULL AND {job} IN (SELECT value FROM json_each(?))) WHERE nth = 1",
            (json.dumps(jobs),),
        ).fetchall()
        yield from self._rows(names)

    def _rows(self, names: Iterable[tuple[str]]) -> Iterator[RunRow]:
        for name in names:
            found = self._connection.execute(f"SELECT {_RUN} FROM runs WHERE run = ?", name)
            yield from (RunRow(*row) for row in found)

    def ranks(self, run: str) -> list[RankFound]:
        """The ranks of a run with the latest entries of each list."""
        found = self._connection.execute("SELECT rank, body, kept FROM ranks WHERE run = ? ORDER BY rank", (run,))
        return [
            RankFound(
                rank, body, kept, self._bodies("stalls", "start", run, rank),
                {name: self._bodies(name, "place", run, rank) for name in LISTS},
            )
            for rank, body, kept in found.fetchall()
        ]  # fmt: skip

    def _bodies(self, table: str, order: str, run: str, rank: str) -> tuple[str, ...]:
        found = self._connection.execute(
            f"SELECT body FROM {table} WHERE run = ? AND rank = ? ORDER BY {order} DESC LIMIT {LATEST}", (run, rank)
        )
        return tuple(body for (body,) in found.fetchall()[::-1])

    def last_steps(self, run: str, rank: str, tier: str) -> StepsFound | None:
        """The row of a tier that began last."""
        found: StepsFound | None = self._connection.execute(
            "SELECT start, seconds, count, min, max, states FROM steps "
            "WHERE run = ? AND rank = ? AND tier = ? ORDER BY start DESC LIMIT 1",
            (run, rank, tier),
        ).fetchone()
        return found

    # Forgetting

    def forget_runs(self, before: float) -> list[str]:
        """Delete what has not been heard of since ``before``; the names."""
        found = self._connection.execute("SELECT run FROM runs WHERE coalesce(ended, told) < ?", (before,))
        names = [name for (name,) in found]
        for name in names:
            self.forget_run(name)
        return names

    def forget_run(self, run: str) -> None:
        with self._transaction() as execute:
            for table in _BY_RUN:
                execute.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
            execute.execute("DELETE FROM runs WHERE run = ?", (run,))

    def forget_steps(self, keep: dict[str, float]) -> None:
        """Delete rows of each tier that began before the time given."""
        with self._transaction() as execute:
            for tier, before in keep.items():
                execute.execute("DELETE FROM steps WHERE tier = ? AND start < ?", (tier, before))
            execute.execute("DELETE FROM recent_steps")  # of earlier versions

    def forget_stalls(self, before: float) -> None:
        with self._transaction() as execute:
            execute.execute('DELETE FROM stalls WHERE "end" < ?', (before,))

    def forget_unread_stalls(self) -> None:
        """Those of each rank that ``ranks`` does not find: a run that goes on may have any number."""
        nth = "row_number() OVER (PARTITION BY run, rank ORDER BY start DESC)"
        with self._transaction() as execute:
            execute.execute(
                f"DELETE FROM stalls WHERE id IN (SELECT id FROM (SELECT id, {nth} AS nth FROM stalls) WHERE nth > ?)",
                (LATEST,),
            )

    def give_back(self) -> None:
        """Return free pages to the file system."""
        self._connection.executescript("PRAGMA incremental_vacuum")  # execute() takes one step, which is one page
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0.2, isolation_level=None, cached_statements=64)


def _put(connection: sqlite3.Connection, table: str, rows: Iterable[Any]) -> None:
    """``rows``: records with the table's columns, in their order."""
    for row in map(astuple, rows):
        connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _list(name: str) -> str:
    if name not in LISTS:
        raise ValueError(name)
    return name


def lost(error: sqlite3.Error) -> bool:
    """Whether the connection is of no use any more: the disk went away, or may not be written for now."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (8, 10, 14)  # READONLY, IOERR, CANTOPEN


def damaged(error: sqlite3.Error) -> bool:
    """Whether the file is no (whole) database, as opposed to a disk that is full, gone or not to be written."""
    text = str(error)
    if "unsupported file format" in text:  # a header overwritten; SQLite's code for it is that of any error
        return True
    code = getattr(error, "sqlite_errorcode", None)  # Python 3.11
    if code is not None:
        return code & 0xFF in (11, 26)  # CORRUPT, NOTADB
    return isinstance(error, sqlite3.DatabaseError) and ("malformed" in text or "not a database" in text)


def move_aside(path: Path, stamp: int) -> Path:
    """Put a damaged file where a person can look at it; older ones of these are deleted. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for companion in COMPANIONS:
        if os.path.lexists(f"{path}{companion}"):
            os.replace(f"{path}{companion}", f"{aside}{companion}")
    kept = sorted({_stem(found) for found in path.parent.glob(f"{path.name}.damaged-*")})
    for old in kept[:-ASIDE]:
        for companion in COMPANIONS:
            Path(f"{old}{companion}").unlink(missing_ok=True)
    return aside


def _stem(found: Path) -> str:
    text = str(found)
    for companion in COMPANIONS[1:]:
        text = text.removesuffix(companion)
    return text
