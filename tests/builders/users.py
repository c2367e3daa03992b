"""Ordinary users of a host: programs that run as one, and directories that they can reach."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OWNER, STRANGER = 61184, 61185
PYTHON = "/usr/bin/python3"  # a checkout's own may lie where only root comes


def started(user: int, code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Python code that runs as the user; stdout and stderr are pipes."""
    command = [PYTHON, "-I", "-c", code, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, user=user, group=user, extra_groups=[], stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options
    )


def output(user: int, code: str, *arguments: object) -> str:
    """What the code printed, or the last line of its traceback."""
    with started(user, code, *arguments) as process:
        out, err = process.communicate(timeout=60)
    return out.strip() or err.strip().rpartition("\n")[2]


@contextlib.contextmanager
def reachable() -> Iterator[Path]:
    """A directory that every user can pass through, as /run is."""
    with tempfile.TemporaryDirectory(prefix="trainprobe-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@contextlib.contextmanager
def mounted(kind: str, place: Path, options: str = "mode=755") -> Iterator[Path]:
    """A file system of its own, made at ``place`` and gone afterwards."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, kind, str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
