"""Pressure stall information of the host."""

from __future__ import annotations

from trainprobe.collect.lines import lines_of
from trainprobe.collect.procfs import SMALL, read_file
from trainprobe.collect.source import Unavailable
from trainprobe.model.message import template

RESOURCES = ("cpu", "memory", "io")
NO_PSI = template("source.no_psi", "the kernel does not count pressure (PSI)")
PSI_REMEDY = template("source.no_psi_remedy", "boot with psi=1 (needs CONFIG_PSI)")


def read(root: str = "/proc") -> dict[str, float] | Unavailable:
    """Cumulative seconds by "cpu.some", "memory.full" …"""
    found: dict[str, float] = {}
    for resource in RESOURCES:
        text = (read_file(f"{root}/pressure/{resource}", SMALL) or b"").decode("ascii", "replace")
        found.update((f"{resource}.{kind}", seconds) for kind, seconds in parse(text).items())
    if not found:
        return Unavailable(NO_PSI(), PSI_REMEDY())
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
