"""What one run of the suite does: pure data, made by ``faults``, carried out by ``run`` and by the training."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

SCRATCH, SLOW = "@scratch", "@slow"
"""Stand in a plan for directories that are known only when it runs: on the ordinary disk, on the slow device."""


@dataclass(frozen=True)
class Device:
    """A throttled block device with a filesystem. Rates in bytes/s; ``files`` of ``file_bytes`` to read."""

    read_rate: int | None = None
    write_rate: int | None = None
    files: int = 0
    file_bytes: int = 0


@dataclass(frozen=True)
class Plan:
    """One training with its faults. ``training`` is what the training itself reads."""

    key: str  # "checkpoint/3": cause and number
    cause: str  # what is planted; "none" for a clean run
    kind: str  # what the verdict should be: stall | bottleneck | end | none
    style: str  # module of ``trainings``
    how: str
    seed: int
    training: dict[str, Any]
    device: Device | None = None
    kill_after: float | None = None  # seconds after the first worker is seen: SIGKILL to one of them, from outside
    outside: tuple[tuple[str, float, float], ...] = ()  # (what, seconds after the training was seen, how long)
    stdout_rate: int | None = None  # bytes/s at which stdout is read; None: at once
    tags: tuple[str, ...] = field(default=())
    both: tuple[str, ...] = ()  # the causes of a run that has two

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def place(value: Any, names: dict[str, str]) -> Any:
    """The same structure with the stand-ins at the start of its strings replaced by real directories."""
    if isinstance(value, dict):
        return {key: place(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [place(item, names) for item in value]
    if isinstance(value, str):
        for name, real in names.items():
            if value.startswith(name):
                return real + value[len(name) :]
    return value
