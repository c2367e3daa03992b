# SPDX-License-Identifier: Apache-2.0
"""Kernels before 6.2 do not take a program's word for a type: what lies behind a table is read by a helper there."""

from __future__ import annotations

import os
import struct

import pytest

from trainprobe.bpf.compile import child, kernel_types, translate
from trainprobe.bpf.compile.cache import Cache
from trainprobe.bpf.load import maps
from trainprobe.bpf.load.install import Installer

CAST = "-DFUNCTION_CAST="


@pytest.mark.timeout(120)
def test_the_programs_for_events_load_without_casts() -> None:
    tracefs = child.prepared()
    flags = child.compiler_flags(tracefs, Cache(""), auto=True)
    assert any(flag.startswith(CAST) for flag in flags)
    older = [CAST + "0" if flag.startswith(CAST) else flag for flag in flags]
    image = translate.Compiler().compiled(translate.programs(), older)
    assert {name: at for name, code in image.programs.items() if (at := falls_back(code.instructions))} == {}
    calls_of_the_kernel = [
        name
        for name, code in image.programs.items()
        for at in range(0, len(code.instructions), 8)
        if code.instructions[at] == 0x85 and code.instructions[at + 1] >> 4 == 2
    ]
    assert calls_of_the_kernel == []
    installed = Installer(maps.library(), tracefs, kernel_types.tracepoint_types(flags)).events(image)
    try:
        assert {"raw:sched_switch on_switch", "syscalls:sys_enter_write on_write_begin"} <= installed.attached.keys()
    finally:
        for descriptors in (installed.attached, installed.programs, installed.maps):
            for descriptor in descriptors.values():
                os.close(descriptor)


def falls_back(instructions: bytes) -> list[int]:
    """Instructions, no jumps, that go on to a loop's first one from behind: Linux before 6.2 refuses such programs.

    In the order of check_cfg() there: what is on the way to an instruction depends on it.
    """
    ways = []
    for place, (code, _, offset, _) in enumerate(struct.iter_unpack("<BBhi", instructions)):
        jumps, operation = code & 7 in (5, 6), code & 0xF0
        if not jumps or operation == 0x80:  # a call goes on, too
            ways.append([(place + 1, False)])
        elif operation == 0x90:
            ways.append([])
        else:
            ways.append(
                [(place + 1 + offset, True)] if not operation else [(place + 1, True), (place + 1 + offset, True)]
            )
    found, met, left = [], {0}, set[int]()
    path = [(0, iter(ways[0]))]
    while path:
        place, others = path[-1]
        for target, jumped in others:
            if target in met and target not in left and not jumped:
                found.append(place)
            elif target not in met:
                met.add(target)
                path.append((target, iter(ways[target])))
                break
        else:
            left.add(place)
            path.pop()
    return found
