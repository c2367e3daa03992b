# SPDX-License-Identifier: Apache-2.0
"""What watching costs, as far as it does not depend on how fast a machine is: it must not grow unnoticed.

Who makes a program longer on purpose raises its limit here and says what it buys; times are in docs/cost.md.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import bpf_floor, bpf_programs, footprint
from benchmarks.programs import Daemon
from tests.kernel.test_training import train
from trainprobe.bpf import abi
from trainprobe.bpf.compile.btf import Btf
from trainprobe.bpf.probes import Probes
from trainprobe.model.cells import RowKind

INSTRUCTIONS = {
    "on_switch": 1470, "on_clock": 165, "on_timer": 110,
    "on_read_begin": 275, "on_read_end": 385, "on_write_begin": 1310, "on_write_end": 770,
    "on_name_begin": 800, "on_name_end": 1690,
    "on_record": 1880, "on_record_end": 855, "on_backward": 1930, "on_graph_task": 150, "on_backward_end": 435,
    "on_set_grad": 355, "on_maker_end": 180, "on_receive_end": 200, "on_clone_end": 180, "on_file_fault": 110,
    "on_gpu_wait": 730, "on_gpu_copy": 240, "on_gpu_allocate": 510, "on_gpu_free": 510, "on_gpu_return": 430,
    "on_start_open": 1110, "on_start_look": 75,
    "on_gpu_kernel": 220, "on_gpu_graph": 220, "on_gpu_upload": 230, "on_release": 230, "on_gpu_step": 1410,
}  # fmt: skip
"""As the kernel holds each program of the hot paths, with 15 % of room for other compilers and kernels.

Seventy of each are for a switch that the kernel did not tell of; but for one byte that is compared they do not run.
Some twenty for each time that a ledger is found: more instructions than a helper's call, and a tenth of its time.
A hundred of on_read_end note what a program reads before its first step; but for one byte they do not run afterwards.
Five hundred of on_start_open find the loops of frameworks among the files of code, until a program's first step.
Seven, in each of the two places that fill a row, are for what the scheduler ran of its thread.
Twenty of each are for descriptors that do not write, and for the ends of paths of up to 511 bytes.
Thirty of on_record bound the drivers of a process; only a thread that has no ledger yet runs them.
"""

LONGER_WITHOUT_CASTS = {"on_write_begin": 1400, "on_name_begin": 1000}
"""Before Linux 6.2 what a descriptor leads to is read by a helper's call for each member, not by a plain load."""

ROWS_PER_STEP = 1
MESSAGES_PER_STEP = 1.5
"""Rows, and what is told of files and processes, in a plain training with two workers."""
ROW_BYTES = 2048


VERIFIED, VERIFIED_IN_ALL = 30_000, 190_000
"""Instructions that the verifier goes through, loops and branches again and again: half of the time of a start."""
SIZE_AT, VERIFIED_AT = 20, 216


def of_program(program: int, at: int) -> int:
    """A number of a loaded program's bpf_prog_info: xlated_prog_len, or verified_insns (0 before Linux 5.16)."""
    libc = ctypes.CDLL(None, use_errno=True)
    info = ctypes.create_string_buffer(256)
    attributes = ctypes.create_string_buffer(struct.pack("=IIQ", program, len(info), ctypes.addressof(info)), 128)
    get_info, numbers = 15, {"x86_64": 321, "aarch64": 280}
    assert libc.syscall(numbers[os.uname().machine], get_info, attributes, len(attributes)) == 0
    return int(struct.unpack_from("=I", info.raw, at)[0])


@pytest.fixture(scope="module")
def limits() -> dict[str, int]:
    with Btf.of_kernel() as btf:
        return INSTRUCTIONS if btf.function("bpf_rdonly_cast") else INSTRUCTIONS | LONGER_WITHOUT_CASTS


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_no_program_of_the_hot_paths_grows(probes: Probes, limits: dict[str, int], name: str) -> None:
    length = of_program(probes._loaded.programs[name], SIZE_AT) // 8
    assert 0.5 * limits[name] < length <= limits[name]


def test_no_program_takes_the_verifier_long(probes: Probes) -> None:
    """A loop over the bytes of a path once took more than all other programs together."""
    verified = {name: of_program(one, VERIFIED_AT) for name, one in probes._loaded.programs.items()}
    assert {name: number for name, number in verified.items() if number > VERIFIED} == {}
    assert sum(verified.values()) <= VERIFIED_IN_ALL


def test_a_step_tells_one_row_and_little_more(
    probes: Probes, torch_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that comes through the ring, beginning and end of the training included."""
    messages: list[bytes] = []
    drain = probes._ring.drain

    def kept() -> Sequence[bytes]:
        messages.extend(raw := drain())
        return raw

    monkeypatch.setattr(probes._ring, "drain", kept)
    told, truth, _ = train(probes, torch_python, "--steps", "200", "--workers", "2")
    steps = truth["counts"]["steps"]
    beginning_and_end = 12
    # A fetch that lasted long has a row of its own: how many do is the host's affair.
    rows = [row for row in told.rows() if row.kind is not RowKind.FETCH_END]
    assert len(rows) <= steps * ROWS_PER_STEP + beginning_and_end
    assert len(messages) <= steps * MESSAGES_PER_STEP
    assert sum(map(len, messages)) <= steps * MESSAGES_PER_STEP * ROW_BYTES
    assert ctypes.sizeof(abi.Row) <= ROW_BYTES


def test_what_the_kernel_counts_for_nothing_is_little() -> None:
    """It is taken off what programs cost: it must not be a program's own time."""
    before = footprint.STATISTICS.read_text()
    footprint.STATISTICS.write_text("1")
    try:
        assert 0 < bpf_floor.nanoseconds_of_nothing() < 200
    finally:
        footprint.STATISTICS.write_text(before)


def test_who_is_timed_after_a_daemon_is_bare_again(tmp_path: Path) -> None:
    """The kernel runs its programs for seconds after its end."""
    before = bpf_programs.loaded()
    with bpf_programs.gone_afterwards(), Daemon(tmp_path, "targets: {auto: false}\n"):
        ours = bpf_programs.loaded() - before
        assert len(ours) > 20
    assert not ours & bpf_programs.loaded()
