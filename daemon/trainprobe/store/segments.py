"""Append-only files for those who may not open the database: whole lines, bounded segments, deleted as a whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

SUFFIX = ".jsonl"
MOST_OPEN = 8192
"""Segments that are gone on with, the latest; of another one the next line begins a new one."""


class Segments:
    """Writes below ``directory``, for the group ``gid`` to read. Raises OSError where that fails."""

    def __init__(self, directory: Path, gid: int, limit: int) -> None:
        self.directory = directory
        self._gid = gid
        self._limit = limit
        self._open: dict[str, tuple[int, int]] = {}  # by stem: number, size

    def append(self, stem: str, text: str, *, header: str, number: int) -> None:
        """More lines for the segments ``<stem><number>.jsonl``; ``number`` is what a new one should be called.

        A process begins segments of its own: those of one that was killed may end in half a line.
        """
        data = text.encode()
        last = self._open.pop(stem, None)  # half a line may be there if this fails: then go on in another one
        at, size = last or (number - 1, 0)
        if last is None or size + len(data) > self._limit or not os.path.lexists(self._path(stem, at)):
            at, size = self._begin(stem, header.encode(), max(number, at + 1)), len(header)
        descriptor = os.open(self._path(stem, at), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._write(descriptor, data)
        finally:
            os.close(descriptor)
        self._open[stem] = at, size + len(data)
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    def _begin(self, stem: str, header: bytes, number: int) -> int:
        """A new segment; the number that it got."""
        self._make(Path(self._path(stem, 0)).parent)
        while True:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(self._path(stem, number), flags, 0o600)
                break
            except FileExistsError:
                number += 1
        try:
            self._write(descriptor, header)
            if self._gid >= 0:
                os.fchown(descriptor, -1, self._gid)
            os.fchmod(descriptor, 0o640)
        finally:
            os.close(descriptor)
        return number

    def _make(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            each.mkdir(mode=0o700)
            if self._gid >= 0:
                os.chown(each, -1, self._gid)
            each.chmod(0o750)

    @staticmethod
    def _write(descriptor: int, data: bytes) -> None:
        written = os.write(descriptor, data)
        if written < len(data):  # the disk is nearly full: the rest would be half a line
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise OSError(28, "No space left on device")

    def _path(self, stem: str, number: int) -> str:
        return f"{self.directory}/{stem}{number}{SUFFIX}"

    def forget(self, folder: str, before: float, infix: str = "") -> None:
        """Delete the segments there that were last written before ``before`` (UNIX seconds); never a current one."""
        for path, status in _files(self.directory / folder):
            if infix in path.name and status.st_mtime < before and not self._is_current(folder, path):
                path.unlink(missing_ok=True)

    def shorten(self, folder: str, most: float) -> int:
        """Delete the oldest segments there while they take more bytes; never a current one. The bytes that went."""
        found = sorted(_files(self.directory / folder), key=lambda one: one[1].st_mtime)
        before = size = self.size(folder)
        for path, status in found:
            if size > most and not self._is_current(folder, path):
                path.unlink(missing_ok=True)
                size -= status.st_blocks * 512
        return before - size

    def _is_current(self, folder: str, path: Path) -> bool:
        stem = _stem(folder, path)
        return stem in self._open and str(path) == self._path(stem, self._open[stem][0])

    def forget_folder(self, folder: str) -> None:
        where = self.directory / folder
        for path, _ in _files(where):
            path.unlink(missing_ok=True)
            self._open.pop(_stem(folder, path), None)
        if where.is_dir():
            where.rmdir()

    def folders(self, below: str) -> list[str]:
        where = self.directory / below
        return sorted(path.name for path in where.iterdir() if path.is_dir()) if where.is_dir() else []

    def size(self, folder: str) -> int:
        return sum(status.st_blocks * 512 for _, status in _files(self.directory / folder, deep=True))

    @property
    def bytes(self) -> int:
        return self.size("")


def _stem(folder: str, path: Path) -> str:
    """A stem ends in no digit."""
    return f"{folder}/{path.name.removesuffix(SUFFIX).rstrip('0123456789')}"


def _files(folder: Path, *, deep: bool = False) -> Iterator[tuple[Path, os.stat_result]]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(status.st_mode):
            if deep:
                yield from _files(path, deep=True)
        else:
            yield path, status
