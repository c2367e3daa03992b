# SPDX-License-Identifier: Apache-2.0
"""What is known of system calls by their numbers."""

from __future__ import annotations

import pytest

from trainprobe.bpf.attach import syscalls

MACHINES = ("x86_64", "aarch64")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "call", ["io_uring_enter", "mmap", "munmap", "madvise", "mprotect", "splice", "process_vm_readv", "read", "clone3"]
)
def test_a_call_in_which_a_thread_blocks_has_a_name_whatever_else_is_known_of_it(machine: str, call: str) -> None:
    assert call in syscalls.names(machine).values()


@pytest.mark.parametrize("machine", MACHINES)
def test_no_number_stands_for_two_calls(machine: str) -> None:
    calls: dict[int, set[str]] = {}
    failing = (call for calls in syscalls.FAILING.values() for call in calls)
    for call in (*syscalls.TABLE, *syscalls._NAMED, *failing):
        if (number := call.number(machine)) is not None:
            calls.setdefault(number, set()).add(call.name)
    assert [names for names in calls.values() if len(names) > 1] == []
    assert len(calls) == len(syscalls.names(machine))
    assert not {call.name for call in syscalls._NAMED} & {call.name for call in syscalls.TABLE}
