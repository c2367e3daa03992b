"""Where the timers are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainprobe.bpf.load.install import has_hypervisor


@pytest.mark.parametrize(("flags", "has"), [("fpu hypervisor lm", True), ("fpu lm", False)])
def test_a_machine_says_whether_it_is_a_virtual_one(tmp_path: Path, flags: str, has: bool) -> None:
    cpus = tmp_path / "cpuinfo"
    cpus.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    assert has_hypervisor(str(cpus)) == has
    assert not has_hypervisor(str(tmp_path / "none"))
