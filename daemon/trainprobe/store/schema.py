"""The history's schema, and how a file of an older one becomes one of this.

``MIGRATIONS[n]`` takes a file from schema n to n + 1, in one transaction: a kill leaves the old file or the new one.
A released migration is never changed, only followed by another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

APPLICATION_ID = 0x7470_6831  # "tph1": what `file` and SQLite's pragma application_id say

_LISTS = """
CREATE TABLE {name} (
    run TEXT NOT NULL, rank TEXT NOT NULL, place INTEGER NOT NULL,
    cause TEXT NOT NULL, time REAL, body TEXT NOT NULL,
    PRIMARY KEY (run, rank, place)
) WITHOUT ROWID
"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE runs (
            run TEXT PRIMARY KEY, uid INTEGER, started REAL NOT NULL, ended REAL, told REAL NOT NULL, body TEXT NOT NULL
        ) WITHOUT ROWID
        """,
        "CREATE INDEX runs_told ON runs (told)",
        """
        CREATE TABLE ranks (
            run TEXT NOT NULL, rank TEXT NOT NULL, body TEXT NOT NULL, kept TEXT,
            PRIMARY KEY (run, rank)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE stalls (
            id TEXT PRIMARY KEY, run TEXT NOT NULL, rank TEXT NOT NULL,
            start REAL NOT NULL, "end" REAL, seconds REAL NOT NULL, cause TEXT NOT NULL, body TEXT NOT NULL
        ) WITHOUT ROWID
        """,
        "CREATE INDEX stalls_of_rank ON stalls (run, rank, start)",
        'CREATE INDEX stalls_end ON stalls ("end")',
        _LISTS.format(name="bottlenecks"),
        _LISTS.format(name="warnings"),
        _LISTS.format(name="checkpoints"),
        """
        CREATE TABLE steps (
            run TEXT NOT NULL, rank TEXT NOT NULL, tier TEXT NOT NULL, start REAL NOT NULL,
            seconds REAL NOT NULL, count INTEGER NOT NULL, min REAL NOT NULL, max REAL NOT NULL, states TEXT NOT NULL,
            PRIMARY KEY (run, rank, tier, start)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE recent_steps (
            run TEXT NOT NULL, rank TEXT NOT NULL, start REAL NOT NULL, "end" REAL NOT NULL, rows TEXT NOT NULL,
            PRIMARY KEY (run, rank, start)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX steps_start ON steps (tier, start)",
        'CREATE INDEX recent_end ON recent_steps ("end")',
    ),
)


class NewerSchemaError(Exception):
    """The file was written by a later version; it is left as it is."""

    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(f"{path} has schema {found}, this version knows up to {known}")
        self.path, self.found, self.known = path, found, known
        self.aside = f"mv {path} {path}.newer"
        """The command that puts it aside."""


def refuse_newer(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Raises NewerSchemaError."""
    found = version(connection)
    if found > len(migrations):
        raise NewerSchemaError(path, found, len(migrations))


def migrate(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring the file to the latest schema. Raises sqlite3.Error."""
    for number in range(version(connection), len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in migrations[number]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def version(connection: sqlite3.Connection) -> int:
    """The schema of a file; 0: it is new."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
