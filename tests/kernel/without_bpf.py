# SPDX-License-Identifier: Apache-2.0
"""``without_bpf.py COMMAND…``: runs it where bpf() says EPERM whatever its capabilities, as in many containers."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD_NUMBER, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBERS = {"x86_64": 321, "aarch64": 280}


def refuse_bpf() -> None:
    """Install the filter in this process and all that it starts. Raises OSError."""
    steps = (
        (LOAD_NUMBER, 0, 0, 0),
        (EQUAL, 0, 1, NUMBERS[os.uname().machine]),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    )
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, header, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse_bpf()
    os.execvp(sys.argv[1], sys.argv[1:])
