"""Cgroups that hold one run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.stalls.host import CannotHere

ROOT = Path("/sys/fs/cgroup")
GONE_SECONDS = 15


def memory(name: str, limit: int) -> AbstractContextManager[Path]:
    """A cgroup of either version with so many bytes. Entering raises CannotHere where none can be made."""
    if (ROOT / "memory").is_dir():
        return group("memory", name, "memory.limit_in_bytes", limit)
    return _made(ROOT / name, "memory.max", limit)


def group(controller: str, name: str, file: str, limit: int) -> AbstractContextManager[Path]:
    """A cgroup (v1) below our own with one limit. Entering raises CannotHere where there are no such cgroups."""
    own = ROOT / controller
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = own / path.lstrip("/")
    return _made(own / name, file, limit)


@contextmanager
def _made(made: Path, file: str, limit: int) -> Iterator[Path]:
    with _or_cannot(made):
        made.mkdir()
    try:
        with _or_cannot(made / file):
            (made / file).write_text(str(limit))
        yield made
    finally:
        remove(made)


@contextmanager
def _or_cannot(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotHere(f"no cgroup can be made here: {place}: {error.strerror}") from error


def remove(made: Path) -> None:
    """A worker whose trainer was killed notices within seconds; until then the group is busy."""
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        try:
            return made.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def inside(made: Path, command: list[str]) -> list[str]:
    """The command as one that begins by joining the group."""
    return ["sh", "-c", f'echo $$ > {made}/cgroup.procs; exec "$@"', "sh", *command]
