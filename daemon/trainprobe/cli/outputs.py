"""Files that a person asked for: refused before anything starts when they cannot be written, and never half there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

from trainprobe.cli import complain
from trainprobe.text.saying import Saying, saying, word

PRIVATE = 0o600
SYSTEM = (
    word("No such file or directory"),
    word("Permission denied"),
    word("Is a directory"),
    word("No space left on device"),
    word("Not a directory"),
    word("Exec format error"),
    word("Read-only file system"),
    word("File too large"),
    word("File name too long"),
    word("Operation not permitted"),
    word("Address already in use"),
    word("Cannot assign requested address"),
)
"""What the system says most often of files: here for the translators."""


def checked(path: Path) -> Path:
    """The real place of a file to be written. Raises OSError when that cannot work."""
    if _is_special(path):
        return path
    place = _place(path)
    if place.is_dir():
        raise IsADirectoryError(21, word("is a directory"), str(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(2, word("its directory does not exist"), str(path))
    there = place.exists()
    if not os.access(place.parent, os.W_OK | os.X_OK) or (there and not os.access(place, os.W_OK)):
        raise PermissionError(13, word("cannot be written"), str(path))
    return place


def write(path: Path, pieces: Iterable[str]) -> None:
    """The whole text or nothing; what is no ordinary file (/dev/stdout, a pipe) is written to directly.

    A new file is the caller's alone: there are command lines, paths and stacks in it.
    """
    if _is_special(path):
        with path.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
        return
    place = _place(path)
    there = place.stat() if place.exists() else None
    mode = there.st_mode & 0o777 if there and there.st_uid == os.geteuid() else PRIVATE
    temporary = place.with_name(f".{place.name}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "x", encoding="utf-8", opener=_private) as file:
            file.writelines(pieces)
            os.fchmod(file.fileno(), mode)
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def are_one(a: Path | None, b: Path | None) -> bool:
    """Whether both, as ``checked`` gave them, are one ordinary file."""
    return a is not None and a == b and not _is_special(a)


def reason(error: OSError) -> Saying:
    why = saying(error.strerror or str(error))
    return saying("{path}: {why}", path=error.filename, why=why) if error.filename else why


class RecordFile:
    """A recording as it grows, compressed where its name ends with .gz. A full disk ends the recording and not the
    run. Until it begins, the file is as it was."""

    def __init__(self, path: Path | None) -> None:
        """Raises OSError."""
        self._plain: IO[bytes] | None = None  # None: none is wanted, or it has ended
        self._file: IO[bytes] | None = None  # the same, or what compresses into it; None: it has not begun
        self._early: list[bytes] = []
        if path:
            self._path, self._is_new = path, not path.exists()
            self._plain = os.fdopen(_private(str(path), os.O_WRONLY | os.O_CREAT), "wb")

    def begin(self) -> None:
        """What is to be recorded runs: now what was in the file before goes."""
        if self._plain is None:
            return
        try:
            if not _is_special(self._path):
                self._plain.truncate(0)
            self._file = _compressed(self._plain) if self._path.suffix == ".gz" else self._plain
        except OSError as error:
            self._end(error)
        for line in self._early:
            self.line(line)

    def line(self, line: bytes) -> None:
        if self._plain is None:
            return
        if self._file is None:
            self._early.append(line)
            return
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            self._end(error)

    def close(self) -> None:
        if self._plain is None:
            return
        try:
            if self._file is not None:
                self._file.close()
            elif self._is_new:
                self._path.unlink(missing_ok=True)
            self._plain.close()
        except OSError as error:  # for want of room for the end mark of what is compressed
            self._end(error)

    def _end(self, error: OSError) -> None:
        what = saying("the recording ends here: {why}", why=reason(error))
        complain(what, word("the report is not affected; name a place with room for it"))
        self._plain = self._file = None


def _compressed(file: IO[bytes]) -> IO[bytes]:
    import gzip  # here: most runs start without

    return cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE)


def _place(path: Path) -> Path:
    """Where a link leads, unless another user made it: he would choose which file of ours is written."""
    if path.is_symlink() and path.lstat().st_uid not in (0, os.geteuid()):
        raise PermissionError(13, word("is a link that another user made"), str(path))
    return Path(os.path.realpath(path))


def _is_special(path: Path) -> bool:
    """A pipe, a terminal, a device: something that a rename would take away."""
    return path.exists() and not path.is_file() and not path.is_dir()
