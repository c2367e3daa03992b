"""What the kernel counts for a BPF program that does nothing: a part of its count of every other program.

With ``kernel.bpf_stats_enabled`` the kernel reads its clock before and after each run; what lies between the two
readings is counted, of which a part is the reading itself.
"""

from __future__ import annotations

import ctypes
import os
import struct

from trainprobe.bpf.load.kernel_calls import KernelCalls

NUMBERS = {"x86_64": 321, "aarch64": 280}
LOAD, TEST_RUN = 5, 10
SOCKET_FILTER = 1
NOTHING = bytes((0xB7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0))  # r0 = 0; exit
RUNS = 200_000
PACKET = 64


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """bpf(2): what it returned, and the attributes as it left them. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    room = ctypes.create_string_buffer(attributes, 128)
    number = ctypes.c_long(NUMBERS[os.uname().machine])
    answer = int(libc.syscall(number, ctypes.c_int(command), room, ctypes.c_uint32(len(room))))
    if answer < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return answer, room.raw


def nanoseconds_of_nothing() -> float:
    """Counted for one run of an empty program, in a row; the kernel must be counting. Raises OSError."""
    text, licence = ctypes.create_string_buffer(NOTHING), ctypes.create_string_buffer(b"GPL")
    instructions = len(NOTHING) // 8
    program, _ = bpf(
        LOAD, struct.pack("=IIQQ", SOCKET_FILTER, instructions, ctypes.addressof(text), ctypes.addressof(licence))
    )
    try:
        packet = ctypes.create_string_buffer(PACKET)
        before = KernelCalls().run_statistics(program)
        bpf(TEST_RUN, struct.pack("=IIIIQQII", program, 0, PACKET, 0, ctypes.addressof(packet), 0, RUNS, 0))
        after = KernelCalls().run_statistics(program)
    finally:
        os.close(program)
    return (after[0] - before[0]) / (after[1] - before[1])
