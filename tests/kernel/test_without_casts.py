# SPDX-License-Identifier: Apache-2.0
"""Kernels before 6.2 do not take a program's word for a type: what lies behind a table is read by a helper there."""

from __future__ import annotations

import os

import pytest

from trainprobe.bpf import compile as child
from trainprobe.bpf import kernel_types, maps, translate
from trainprobe.bpf.install import MARKS, Installer

CAST = "-DFUNCTION_CAST="


@pytest.mark.timeout(120)
def test_the_programs_for_events_load_without_casts() -> None:
    tracefs = child.prepared()
    flags = child.compiler_flags(tracefs, auto=True)
    assert any(flag.startswith(CAST) for flag in flags)
    older = [CAST + "0" if flag.startswith(CAST) else flag for flag in flags]
    image = translate.Compiler().compiled(translate.programs() - MARKS, older)
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
