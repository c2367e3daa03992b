"""Where the timers are looked at, and how large maps are."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainprobe.bpf.compile.image import MapShape
from trainprobe.bpf.load.install import KEEPING, MAPS, has_hypervisor, with_room


@pytest.mark.parametrize(("flags", "has"), [("fpu hypervisor lm", True), ("fpu lm", False)])
def test_a_machine_says_whether_it_is_a_virtual_one(tmp_path: Path, flags: str, has: bool) -> None:
    cpus = tmp_path / "cpuinfo"
    cpus.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    assert has_hypervisor(str(cpus)) == has
    assert not has_hypervisor(str(tmp_path / "none"))


def test_processors_that_keep_free_entries_leave_those_that_are_in_use() -> None:
    """As many as the map is said to have, on each machine."""
    shape = MapShape(9, 16, 96, 8192, 0)
    assert with_room("files", shape, 224) == MapShape(9, 16, 96, 8192 + 128 * 224, 0)
    assert with_room("processes", shape, 224) == shape
    assert {*MAPS} >= KEEPING - {"gpu_calls"}, "which only the kernel's programs read"
