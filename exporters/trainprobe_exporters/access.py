"""The token that opens page and API, and where that is: files that the exporter makes, for the eyes of its group."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

FILE_NAME = "token"
ADDRESS_NAME = "address"
_FORM = re.compile(r"[A-Za-z0-9_-]{43}")


def runtime_directory() -> Path:
    """Where the token lies: the unit's RuntimeDirectory, else /run/trainprobe-exporter."""
    named = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    return Path(named or "/run/trainprobe-exporter")


def token_in(directory: Path) -> str:
    """The token of the file there, so that open pages outlive a restart; a new one (0640) if there is none of ours.

    Raises OSError when the file cannot be made.
    """
    path = directory / FILE_NAME
    return _ours(path) or _made(path)


def _ours(path: Path) -> str:
    """The token in ``path`` if that is a file of this user that nobody else could have written; else ""."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, encoding="ascii", errors="replace") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o027:
            return ""
        text = file.read(64).strip()
    return text if _FORM.fullmatch(text) else ""


def tell_address(directory: Path, url: str) -> None:
    """Write down where this exporter listens, for `trainprobe page`. Raises OSError."""
    _write(directory / ADDRESS_NAME, url)


def _made(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    _write(path, token)
    return token


def _write(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(line + "\n")
            os.fchmod(descriptor, 0o640)
        os.rename(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
