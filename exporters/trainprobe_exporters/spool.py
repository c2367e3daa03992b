"""What is still to be told to Grafana, and what has been: in SQLite, so that neither restart nor kill tells it twice.

An entry is marked before it is sent. One that was marked and is still here may have arrived: it is looked for first.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from trainprobe.model.dataclass import dataclass
from trainprobe_exporters.annotation import Annotation

MAX_ENTRIES = 10_000
MAX_DONE = 50_000  # remembered, the latest: many times what reports still list
_SCHEMA = """
CREATE TABLE IF NOT EXISTS spool (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    time INTEGER NOT NULL,
    time_end INTEGER NOT NULL,
    text TEXT NOT NULL,
    tags TEXT NOT NULL,
    sent_as INTEGER             -- the time under which it was sent, if it ever was
);
CREATE TABLE IF NOT EXISTS done (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    annotation INTEGER,         -- Grafana's number; NULL: given up
    told TEXT NOT NULL          -- what it was told, to see whether that has changed
);
CREATE TABLE IF NOT EXISTS counts (outcome TEXT PRIMARY KEY, total INTEGER NOT NULL);
"""


@dataclass(frozen=True)
class SpoolEntry:
    """``known_as``: Grafana's number, where it has it already; ``sent_as``: the time it was sent with before."""

    annotation: Annotation
    known_as: int | None
    sent_as: int | None


class Spool:
    """Raises sqlite3.Error, OSError when its file cannot be used; a broken file is put aside and a new one begun."""

    def __init__(self, path: Path, limit: int = MAX_ENTRIES) -> None:
        self._limit = limit
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        try:
            self._base = _opened(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            path.replace(path.with_name(path.name + ".broken"))
            for left in ("-wal", "-shm"):
                path.with_name(path.name + left).unlink(missing_ok=True)
            self._base = _opened(path)

    def close(self) -> None:
        self._base.close()

    def put(self, annotations: list[Annotation]) -> None:
        """Take those that are new, and those of which something has changed since they were told."""
        with self._base:
            for annotation in annotations:
                self._put(annotation)
            self._drop_oldest()

    def next(self) -> SpoolEntry | None:
        row = self._base.execute(
            "SELECT spool.key, time, time_end, text, tags, annotation, sent_as"
            " FROM spool LEFT JOIN done ON done.key = spool.key ORDER BY spool.seq LIMIT 1"
        ).fetchone()
        if row is None:
            return None
        key, time, time_end, text, tags, known_as, sent_as = row
        return SpoolEntry(Annotation(key, time, time_end, text, tuple(json.loads(tags))), known_as, sent_as)

    def mark(self, annotation: Annotation) -> None:
        with self._base:
            self._base.execute("UPDATE spool SET sent_as = ? WHERE key = ?", (annotation.time, annotation.key))

    def finish(self, annotation: Annotation, number: int | None, outcome: str) -> None:
        """It has arrived as ``number``, or is given up (None)."""
        with self._base:
            self._base.execute("DELETE FROM spool WHERE key = ?", (annotation.key,))
            self._done(annotation.key, number, _row(annotation))
            self._count(outcome, 1)
            self._base.execute("DELETE FROM done WHERE seq <= (SELECT max(seq) FROM done) - ?", (MAX_DONE,))

    @property
    def pending(self) -> int:
        count: int = self._base.execute("SELECT count(*) FROM spool").fetchone()[0]
        return count

    @property
    def counts(self) -> dict[str, int]:
        return dict(self._base.execute("SELECT outcome, total FROM counts"))

    def _put(self, annotation: Annotation) -> None:
        row = self._base.execute("SELECT annotation, told FROM done WHERE key = ?", (annotation.key,)).fetchone()
        if row is not None and (row[0] is None or row[1] == _row(annotation)):
            return
        values = (annotation.time, annotation.time_end, annotation.text, json.dumps(annotation.tags), annotation.key)
        changed = self._base.execute("UPDATE spool SET time=?, time_end=?, text=?, tags=? WHERE key=?", values)
        if not changed.rowcount:
            self._base.execute("INSERT INTO spool (time, time_end, text, tags, key) VALUES (?, ?, ?, ?, ?)", values)

    def _drop_oldest(self) -> None:
        excess = self.pending - self._limit
        if excess <= 0:
            return
        oldest = self._base.execute("SELECT key FROM spool ORDER BY seq LIMIT ?", (excess,)).fetchall()
        for (key,) in oldest:
            self._done(key, None, "")
            self._base.execute("DELETE FROM spool WHERE key = ?", (key,))
        self._count("dropped", len(oldest))

    def _done(self, key: str, number: int | None, told: str) -> None:
        self._base.execute("DELETE FROM done WHERE key = ?", (key,))
        self._base.execute("INSERT INTO done (key, annotation, told) VALUES (?, ?, ?)", (key, number, told))

    def _count(self, outcome: str, number: int) -> None:
        self._base.execute(
            "INSERT INTO counts VALUES (?, ?) ON CONFLICT (outcome) DO UPDATE SET total = total + excluded.total",
            (outcome, number),
        )


def _opened(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(path, timeout=1, check_same_thread=False)
    try:
        base.execute("PRAGMA journal_mode = WAL")
        base.executescript(_SCHEMA)
    except BaseException:
        base.close()
        raise
    return base


def _row(annotation: Annotation) -> str:
    return json.dumps([annotation.time, annotation.time_end, annotation.text, annotation.tags])
