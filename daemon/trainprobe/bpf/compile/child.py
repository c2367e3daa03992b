# SPDX-License-Identifier: Apache-2.0
"""The compiler's child: ``python -m trainprobe.bpf.compile.child SOCKET [--auto]``.

Takes all programs from the cache, or compiles them with BCC; loads and attaches them, hands every descriptor that
matters over the socket, and dies. The compiler (LLVM) costs 120 MB; the parent never loads it. Attachments live as
long as somebody holds their descriptors.

Events come first: with them the parent can begin. Marks, which are half of what is compiled, follow while it does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Collection
from functools import partial

from trainprobe.bpf import errors
from trainprobe.bpf.compile import kernel_types, translate
from trainprobe.bpf.compile.btf import Btf, BtfError
from trainprobe.bpf.compile.cache import Cache
from trainprobe.bpf.compile.defines import defines
from trainprobe.bpf.compile.forked_task import ForkedTask
from trainprobe.bpf.compile.image import Image
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load import fd_passing, maps
from trainprobe.bpf.load.install import MARKS, Installed, Installer
from trainprobe.bpf.load.kernel_calls import KernelCalls

_CAP_SYSLOG = 34
LONGEST = 4000  # characters of an error that come over the socket


def compiler_flags(tracefs: str, cache: Cache, *, auto: bool) -> list[str]:
    """Everything the C side is told: numbers of the ABI, offsets of this kernel. Those hold until the next boot."""
    complete = kernel_types.are_complete
    kernel = cache.words("kernel", kernel_types.boot_key(), lambda: _kernel_flags(tracefs), complete)
    return [*kernel, *defines(), f"-DTID_ROOM={kernel_types.tid_room()}", *(["-DAUTO"] if auto else [])]


def _kernel_flags(tracefs: str) -> list[str]:
    beside = ForkedTask(lambda: "\n".join(_member_flags()).encode())  # it reads all of the kernel's types
    others = kernel_types.field_flags(tracefs) + kernel_types.function_flags(kernel_types.read_kallsyms())
    return [*(beside.result().decode().split() or _member_flags()), *others]


def _member_flags() -> list[str]:
    try:
        with Btf.of_kernel() as btf:
            return kernel_types.member_flags(btf)
    except BtfError as error:
        raise ProbesUnavailable(errors.NO_TYPES(error=str(error)), errors.BOOT_TYPES()) from error
    except kernel_types.MissingMember as error:
        raise ProbesUnavailable(errors.NO_MEMBER(member=str(error)), errors.TELL_VERSION()) from error


def _require_capabilities() -> None:
    """BPF says only "Operation not permitted"; say which capability is missing instead."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    if effective >> 21 & 1:  # CAP_SYS_ADMIN implies the others
        return
    missing = [name for name, bit in (("CAP_PERFMON", 38), ("CAP_BPF", 39)) if not effective >> bit & 1]
    if missing:
        raise ProbesUnavailable(errors.NO_RIGHTS(names=missing), errors.AS_ROOT())


def _require_bpf() -> None:
    """With every capability the call may still be refused; say by whom, before the compiler says it in its own way."""
    number = KernelCalls().bpf_refused()
    if not number:
        return
    reason = errors.NO_BPF(error=os.strerror(number))
    if number == errno.ENOSYS:
        raise ProbesUnavailable(reason, errors.BOOT_BPF())
    if _filtered():
        raise ProbesUnavailable(errors.BY_FILTER(refused=reason), errors.OUTSIDE())
    raise ProbesUnavailable(reason, errors.SEE_LOCKDOWN())


def _filtered() -> bool:
    """Whether a seccomp filter decides about our system calls."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return any(line.split() == ["Seccomp:", "2"] for line in file)


def _mount_tracefs() -> str:
    """Hosts without systemd boot without it."""
    target = kernel_types.TRACEFS[0]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", target.encode(), b"tracefs", ctypes.c_ulong(0), None) != 0:
        reason = errors.NO_TRACEFS(error=os.strerror(ctypes.get_errno()))
        raise ProbesUnavailable(reason, f"mount -t tracefs none {target}")
    return target


def _hide_addresses() -> None:
    """BCC keeps every symbol of /proc/kallsyms that has an address, to look for a helper that we call by number: a
    tenth of the time to compile. It sees none without CAP_SYSLOG (kallsyms_show_value), which nothing here needs now.
    """
    libc = ctypes.CDLL(None)
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; each of them twice
    if libc.capget(header, sets) == 0:
        sets[3] &= ~(1 << _CAP_SYSLOG - 32)
        libc.capset(header, sets)


class ImageSource:
    """Images of programs: kept ones where they fit, else compiled, and kept for the next start."""

    def __init__(self, cache: Cache, flags: list[str], *, auto: bool) -> None:
        self._cache, self._flags, self._suffix = cache, flags, "-auto" if auto else ""
        self._compiler = translate.Compiler()

    def deliver(self, name: str, wanted: Collection[str], deliver: Callable[[Image], None]) -> None:
        """``deliver`` is called again, with a fresh image, where it refuses one that was kept. Raises
        ProbesUnavailable."""
        name += self._suffix
        key = translate.key(wanted, self._flags)
        kept = self._cache.read(name, key)
        if kept is not None and translate.same_compiler(kept):
            try:
                deliver(kept)
                return
            except ProbesUnavailable as error:
                self._cache.ignored(name, str(error.reason))
        image = self._compiler.compiled(wanted, self._flags)
        deliver(image)
        self._cache.write(name, key, image)


def prepared() -> str:
    """What must be true before anything is compiled; where tracefs is. Raises ProbesUnavailable with what to do."""
    _require_capabilities()
    _require_bpf()
    return kernel_types.find_tracefs() or _mount_tracefs()


def work(channel: socket.socket, *, auto: bool) -> None:
    """Hand over the events, then the marks; raises ProbesUnavailable."""
    tracefs = prepared()
    cache = Cache.of_environment(os.environ)
    flags = compiler_flags(tracefs, cache, auto=auto)
    installer = Installer(maps.library(), tracefs, kernel_types.tracepoint_types(flags))
    source = ImageSource(cache, flags, auto=auto)
    _hide_addresses()

    def hand_over(install: Callable[[Image], Installed], image: Image) -> None:
        installed = install(image)
        fd_passing.send(channel, installed.groups(), installed.missing, cache.notes)
        cache.notes.clear()

    source.deliver("events", translate.programs() - MARKS, partial(hand_over, installer.events))
    source.deliver("marks", MARKS, partial(hand_over, installer.marks))


def main(arguments: list[str]) -> int:
    channel = socket.socket(fileno=int(arguments[0]))
    try:
        work(channel, auto="--auto" in arguments)
    except ProbesUnavailable as error:
        fd_passing.refuse(channel, error.reason, error.remedy)
        return 1
    except (BrokenPipeError, ConnectionResetError):
        return 1  # nobody wants it any longer
    except Exception as error:
        reason = errors.NOT_COMPILED(error=f"{type(error).__name__}: {error}"[-LONGEST:])
        fd_passing.refuse(channel, reason, errors.SEE_ABOVE())
        return 1
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # BCC's own clean-up would disable the perf events that the parent now holds
