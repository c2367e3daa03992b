"""Cgroups (v1) that hold one run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.stalls.host import CannotHere

GONE_SECONDS = 15


@contextmanager
def group(controller: str, name: str, file: str, limit: int) -> Iterator[Path]:
    """A cgroup below our own with one limit. Raises CannotHere where there are no such cgroups."""
    own = Path("/sys/fs/cgroup") / controller
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            own = own / path.lstrip("/")
    made = own / name
    try:
        made.mkdir()
        (made / file).write_text(str(limit))
    except OSError as error:
        raise CannotHere(f"no {controller} cgroup (v1) can be made: {error}") from error
    try:
        yield made
    finally:
        remove(made)


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
