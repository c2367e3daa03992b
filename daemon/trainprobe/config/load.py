"""A configuration file from disk, bounded. What reads YAML is imported where a file has any."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TypeVar

from trainprobe.config.parse import ConfigError, Problem, parse
from trainprobe.text.saying import Saying, saying

Config = TypeVar("Config")

EXPORTER_PATH = Path("/etc/trainprobe/exporter.yaml")
SIZE_LIMIT = 64 * 1024
ATTEMPTS, QUIET_SECONDS = 10, 0.02  # a file that was written to just now is read again


def load(kind: type[Config], path: Path, *, required: bool = True) -> Config:
    """The configuration in the file ``path``; the defaults where it is not there and not ``required``.

    Raises ConfigError: unreadable, no YAML, or anything that does not fit ``kind`` (all of that at once).
    """
    try:
        return parse(kind, _read(path))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not required:
            return parse(kind, {})
        raise ConfigError([Problem("", _reason(error))], str(path)) from None
    except ConfigError as error:
        raise ConfigError(error.problems, str(path)) from None


def _settled(path: Path) -> bytes:
    """Its bytes, when it was not written to meanwhile: half a file may look like a whole one."""
    for _ in range(ATTEMPTS):
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            raw = file.read(SIZE_LIMIT + 1)
            after = os.fstat(file.fileno())
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and _is_old(after.st_mtime_ns):
            break
        time.sleep(QUIET_SECONDS)
    return raw


def _is_old(mtime_ns: int) -> bool:
    return abs(time.time_ns() - mtime_ns) > QUIET_SECONDS * 1e9


def _read(path: Path) -> object:
    raw = _settled(path)
    if len(raw) > SIZE_LIMIT:
        raise ConfigError([Problem("", saying("larger than {bytes} bytes", bytes=SIZE_LIMIT))])
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("", saying("not UTF-8 at byte {byte}", byte=error.start))]) from None
    if all(line.isprintable() and (line.startswith("#") or not line.strip(" ")) for line in text.split("\n")):
        return None  # nothing is set: the usual case
    from trainprobe.config.plain_yaml import plain  # a megabyte, and 7 ms

    return plain(text)


def _reason(error: OSError) -> Saying:
    return saying("cannot be read: {why}", why=saying(error.strerror or str(error)))
