"""Pressure stall information of the host."""

from __future__ import annotations

from trainprobe.collect.lines import lines_of
from trainprobe.collect.procfs import SMALL, read_file
from trainprobe.collect.source import Unavailable

RESOURCES = ("cpu", "memory", "io")


def read(root: str = "/proc") -> dict[str, float] | Unavailable:
    """Cumulative seconds by "cpu.some", "memory.full" …"""
    found: dict[str, float] = {}
    for resource in RESOURCES:
        text = (read_file(f"{root}/pressure/{resource}", SMALL) or b"").decode("ascii", "replace")
        found.update((f"{resource}.{kind}", seconds) for kind, seconds in parse(text).items())
    if not found:
        return Unavailable("the kernel does not count pressure (PSI)", "boot with psi=1 (needs CONFIG_PSI)")
    return found


def parse(text: str) -> dict[str, float]:
    """Seconds by kind ("some", "full") of one pressure file."""
    found = {}
    for line in lines_of(text):
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind in ("some", "full") and total.isascii() and total.isdecimal() and len(total) < 20:
            found[kind] = int(total) / 1e6
    return found
