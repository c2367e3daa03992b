"""What the C sources need of Python's tables is found without a kernel."""

from __future__ import annotations

import re
from pathlib import Path

from trainprobe.bpf.compile import kernel_types
from trainprobe.bpf.load import install

BPF = Path(kernel_types.__file__).parents[1]
C = "\n".join(path.read_text() for path in sorted(BPF.glob("src/**/*.[ch]")))
PYTHON = "\n".join(path.read_text() for path in sorted(BPF.rglob("*.py")))
PROGRAMS = frozenset(re.findall(r"^int (on_\w+)\(", C, re.MULTILINE))


def test_each_member_that_a_program_reads_is_looked_up_and_no_other() -> None:
    known = {key.lstrip("?") for key in kernel_types.MEMBERS}
    assert set(re.findall(r"\bOFFSET_(\w+)", C)) == known


def test_each_field_of_a_tracepoint_that_a_program_reads_is_looked_up_and_no_other() -> None:
    assert set(re.findall(r"\bREAD\([^;]*\bAT_(\w+)\)", C)) == set(kernel_types.FIELDS)


def test_each_map_that_the_parent_reads_is_handed_over_and_no_other() -> None:
    used = set(re.findall(r"\bloaded\.map(?:s\[|\()\"(\w+)\"", PYTHON))
    assert used | {"gpu_tails"} == set(install.MAPS), "gpu_tails is held open alone"


def test_what_is_attached_is_a_program() -> None:
    assert {*install._RAW, *install._EVENTS, *install.MARKS, *install.OPTIONAL} <= PROGRAMS
