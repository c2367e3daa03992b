# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainprobe.bpf.abi import CALL_NUMBERS, Call
from trainprobe.bpf.attach import syscalls
from trainprobe.bpf.compile import kernel_types

FORMAT = """name: mark_victim
ID: 609
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:int pid;	offset:8;	size:4;	signed:1;
	field:__data_loc char[] comm;	offset:12;	size:4;	signed:0;
	field:char name[16];	offset:16;	size:16;	signed:0;
"""


def test_fields_of_a_format_file() -> None:
    assert kernel_types.fields_of(FORMAT) == {"common_type": 0, "common_pid": 4, "pid": 8, "comm": 12, "name": 16}


@given(st.text())
def test_fields_of_anything(text: str) -> None:
    kernel_types.fields_of(text)


KALLSYMS = b"""ffffffff81590a00 t before
ffffffff81590b20 T filemap_fault
ffffffff81591000 t after
ffffffff815b5f90 t shmem_fault
ffffffff815b6000 t next
ffffffff815ea4a0 T do_swap_page
ffffffff815eb000 T more
"""


def test_function_ranges_end_at_the_next_symbol() -> None:
    assert kernel_types.function_ranges(KALLSYMS) == {
        b"filemap_fault": (0xFFFFFFFF81590B20, 0x4E0),
        b"shmem_fault": (0xFFFFFFFF815B5F90, 0x70),
        b"do_swap_page": (0xFFFFFFFF815EA4A0, 0xB60),
    }


def test_hidden_addresses_are_unknown() -> None:
    """kernel.kptr_restrict shows zeros."""
    hidden = b"".join(b"0" * 16 + line[16:] + b"\n" for line in KALLSYMS.splitlines())
    assert kernel_types.function_ranges(hidden) == {}
    assert "-DTEXT_SWAP=0ull" in kernel_types.function_flags(hidden)


def test_kallsyms_are_read_no_further_than_needed(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_bytes(KALLSYMS + b"ffffffff90000000 t filler\n" * 100_000)
    assert len(kernel_types.read_kallsyms(str(path))) < 1 << 20
    assert kernel_types.read_kallsyms(str(tmp_path / "absent")) == b""


def test_every_thread_id_has_a_byte(tmp_path: Path) -> None:
    path = tmp_path / "pid_max"
    path.write_text("4194304\n")
    assert kernel_types.tid_room(str(path)) == 4194304
    path.write_text("301\n")
    assert kernel_types.tid_room(str(path)) >= 32768


def test_no_system_call_is_listed_twice() -> None:
    for machine in ("x86_64", "aarch64"):
        numbers = [n for call in syscalls.TABLE if (n := call.number(machine)) is not None]
        assert len(numbers) == len(set(numbers))
        assert max(numbers) < CALL_NUMBERS
    names = [call.name for call in syscalls.TABLE]
    assert len(names) == len(set(names))


def test_only_calls_that_move_bytes_or_names_are_traced() -> None:
    names = frozenset(call.name for call in syscalls.TABLE)
    traced = {call.name for call in syscalls.TABLE if syscalls.event_name(call, names)}
    assert {"read", "writev", "io_submit", "renameat2", "fcntl"} <= traced
    assert not {"poll", "futex", "recvmsg", "syncfs"} & traced
    assert syscalls.event_name(syscalls.TABLE[0], frozenset()) is None
    assert set(syscalls.TRACED_BY) == {call for call in Call if 1 <= call <= Call.CONTROL}
