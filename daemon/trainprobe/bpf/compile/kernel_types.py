# SPDX-License-Identifier: Apache-2.0
"""What the compiler must know of the running kernel, as ``-D`` flags: offsets of members (BTF), of tracepoint fields
(format files), and the address ranges of three functions (kallsyms)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from trainprobe.bpf.compile.btf import Btf

TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")

# Name of the flag -> alternatives, newest first; "?" in front: 0 where the kernel has none of them.
MEMBERS = {
    "TASK_PID": ("task_struct.pid",),
    "TASK_TGID": ("task_struct.tgid",),
    "TASK_STATE": ("task_struct.__state", "task_struct.state"),
    "TASK_COMM": ("task_struct.comm",),
    "TASK_FILES": ("task_struct.files",),
    "TASK_SIGNAL": ("task_struct.signal",),
    "TASK_LEADER": ("task_struct.group_leader",),
    "TASK_PARENT": ("task_struct.real_parent",),
    "TASK_EXIT_CODE": ("task_struct.exit_code",),
    "TASK_RAN": ("task_struct.se.sum_exec_runtime",),
    "TASK_RAN_BEFORE": ("task_struct.se.prev_sum_exec_runtime",),
    "?TASK_THROTTLED": ("task_struct.throttled",),
    "?TASK_DELAY": ("task_struct.sched_info.run_delay",),
    "?TASK_QUEUED": ("task_struct.sched_info.last_queued",),
    "?TASK_CFS_RQ": ("task_struct.se.cfs_rq",),
    "?CFS_RQ_RQ": ("cfs_rq.rq",),
    "?RQ_CLOCK": ("rq.clock",),
    "SIGNAL_LIVE": ("signal_struct.live.counter",),
    "SIGNAL_FLAGS": ("signal_struct.flags",),
    "SIGNAL_EXIT_CODE": ("signal_struct.group_exit_code",),
    "FILES_TABLE": ("files_struct.fdt",),
    "TABLE_MAX": ("fdtable.max_fds",),
    "TABLE_FD": ("fdtable.fd",),
    "FILE_INODE": ("file.f_inode",),
    "FILE_MODE": ("file.f_mode",),
    "FILE_DENTRY": ("file.f_path.dentry",),
    "FILE_DATA": ("file.private_data",),
    "INODE_MODE": ("inode.i_mode",),
    "INODE_INO": ("inode.i_ino",),
    "INODE_SB": ("inode.i_sb",),
    "INODE_GENERATION": ("inode.i_generation",),
    "INODE_LINKS": ("inode.i_nlink",),
    "INODE_SIZE": ("inode.i_size",),
    "INODE_RDEV": ("inode.i_rdev",),
    "SB_DEV": ("super_block.s_dev",),
    "SB_MAGIC": ("super_block.s_magic",),
    "DENTRY_NAME": ("dentry.d_name.name", "dentry.__d_name.name"),
    "DENTRY_PARENT": ("dentry.d_parent",),
    "SOCKET_SOCK": ("socket.sk",),
    "SOCK_FAMILY": ("sock.__sk_common.skc_family",),
    "?UNIX_ADDRESS": ("unix_sock.addr",),
    "?UNIX_PEER": ("unix_sock.peer",),
    "REQUEST_QUEUE": ("request.q",),
    "REQUEST_FLAGS": ("request.cmd_flags",),
    "REQUEST_LEFT": ("request.__data_len",),
    "REQUEST_START": ("request.start_time_ns",),
    "?TIMER_DUE": ("hrtimer.node.expires",),
    "?TIMER_FUNCTION": ("hrtimer.function",),
    "QUEUE_DISK": ("request_queue.disk",),
    "DISK_MAJOR": ("gendisk.major",),
    "DISK_MINOR": ("gendisk.first_minor",),
}
FIELDS = {
    "FILE_FAULT_INO": ("filemap/mm_filemap_fault", "i_ino"),
    "FILE_FAULT_DEV": ("filemap/mm_filemap_fault", "s_dev"),
    "OOM_PID": ("oom/mark_victim", "pid"),
    "OOM_ANON": ("oom/mark_victim", "anon_rss"),
    "OOM_SHARED": ("oom/mark_victim", "shmem_rss"),
}
FUNCTIONS = {"SWAP": b"do_swap_page", "SHMEM": b"shmem_fault", "FILE": b"filemap_fault"}
_FIELD = re.compile(r"field:[^;]*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);")
TICKS = (b"tick_sched_timer", b"tick_nohz_handler")
"""The function of the scheduler's tick: until Linux 6.8, and since. They lie before all of FUNCTIONS."""
_SYMBOL = re.compile(rb"^([0-9a-f]+) [tT] (do_swap_page|shmem_fault|filemap_fault)\n([0-9a-f]+) ", re.MULTILINE)
_TICK = re.compile(rb"^([0-9a-f]+) [tT] (tick_sched_timer|tick_nohz_handler)$", re.MULTILINE)


STRUCTURES = {"FILE": "file", "LIST_HEAD": "list_head"}
TRACEPOINTS = ("sched_switch",)
"""Those whose arguments our programs read by their types."""
_TRACEPOINT = "-DTRACEPOINT_"


class MissingMember(Exception):
    """The kernel's type information lacks a member that every kernel we know has."""


def member_flags(btf: Btf) -> list[str]:
    """``-DOFFSET_*`` for MEMBERS, and what sched_switch passes; raises MissingMember."""
    flags = []
    for key, paths in MEMBERS.items():
        offset = next((found for path in paths if (found := btf.offset(path)) is not None), None)
        if offset is None and not key.startswith("?"):
            raise MissingMember(" or ".join(paths))
        flags.append(f"-DOFFSET_{key.lstrip('?')}={offset or 0}")
    for key, name in STRUCTURES.items():
        flags.append(f"-DTYPE_{key}={btf.struct(name) or 0}")
    for name in TRACEPOINTS:
        if (found := btf.tracepoint(name)) is None:
            raise MissingMember(f"tracepoint {name}")
        flags.append(f"{_TRACEPOINT}{name}={found}")
    flags.append(f"-DFUNCTION_CAST={btf.function('bpf_rdonly_cast') or 0}")
    return [*flags, f"-DSWITCH_TELLS_STATE={int(btf.tracepoint_arguments('sched_switch') != 3)}"]


def tracepoint_types(flags: Iterable[str]) -> dict[str, int]:
    """Tracepoint -> the id of its type, for those of TRACEPOINTS, as ``member_flags`` told it."""
    told = (flag.removeprefix(_TRACEPOINT).split("=") for flag in flags if flag.startswith(_TRACEPOINT))
    return {name: int(number) for name, number in told}


def fields_of(text: str) -> dict[str, int]:
    """Field -> byte offset, from a tracepoint's format file."""
    return {name: int(offset) for name, offset in _FIELD.findall(text)}


def field_flags(tracefs: str) -> list[str]:
    """``-DAT_*`` for FIELDS; 0 where this kernel has no such tracepoint (it is not attached then)."""
    flags = []
    for key, (event, field) in FIELDS.items():
        try:
            with open(f"{tracefs}/events/{event}/format", encoding="ascii", errors="replace") as file:
                offset = fields_of(file.read(65536)).get(field, 0)
        except OSError:
            offset = 0
        flags.append(f"-DAT_{key}={offset}")
    return flags


def function_ranges(kallsyms: bytes) -> dict[bytes, tuple[int, int]]:
    """Name -> (address, size up to the next symbol) of FUNCTIONS. kallsyms is sorted by address within the kernel."""
    ranges: dict[bytes, tuple[int, int]] = {}
    for address, name, following in _SYMBOL.findall(kallsyms):
        start, end = int(address, 16), int(following, 16)
        if start and 0 < end - start < 1 << 16:
            ranges.setdefault(name, (start, end - start))
    return ranges


def read_kallsyms(path: str = "/proc/kallsyms") -> bytes:
    """The symbols up to the last function wanted (all of them cost 0.1 s); b"" where addresses are hidden."""
    text = b""
    try:
        with open(path, "rb") as file:
            while len(text) < 64 << 20 and (block := file.read(1 << 19)):
                text += block
                if all(b" " + name + b"\n" in text for name in FUNCTIONS.values()):
                    return text + file.read(256)
    except OSError:
        return b""
    return text


def function_flags(kallsyms: bytes) -> list[str]:
    """``-DTEXT_*``: address 0 where unknown; then faults are told apart by tracepoints alone. ``-DTICK``: 0 likewise;
    then nobody knows when a processor did not run."""
    ranges = function_ranges(kallsyms)
    flags = []
    for key, name in FUNCTIONS.items():
        start, size = ranges.get(name, (0, 0))
        flags += [f"-DTEXT_{key}={start}ull", f"-DTEXT_{key}_SIZE={size}"]
    ticks = {name: address for address, name in _TICK.findall(kallsyms)}
    tick = next((ticks[name] for name in TICKS if name in ticks), b"0")
    return [*flags, f"-DTICK={int(tick, 16)}ull"]


def boot_key(path: str = "/proc/sys/kernel/random/boot_id") -> str:
    """Equal for starts of this version in one boot: functions lie elsewhere after the next."""
    import hashlib  # 3.5 MB, which only the loader's child needs

    with open(path, encoding="ascii") as file:
        boot = file.read().strip()
    asked = (MEMBERS, FIELDS, FUNCTIONS, TICKS, STRUCTURES, TRACEPOINTS, os.uname())
    return f"{boot} {hashlib.sha256(repr(asked).encode()).hexdigest()}"


def are_complete(flags: Iterable[str]) -> bool:
    """Whether every function's address is known: one that was hidden may be shown to the next start."""
    return not any(flag.startswith("-DTEXT_") and flag.endswith("=0ull") for flag in flags)


def tid_room(path: str = "/proc/sys/kernel/pid_max") -> int:
    """Room for a byte per thread id: pid_max rounded up, and never less than its usual 4194304 / 128."""
    with open(path, encoding="ascii") as file:
        return -(-max(int(file.read()), 32768) // 64) * 64


def find_tracefs() -> str | None:
    """Where the tracing file system is mounted, or None."""
    return next((path for path in TRACEFS if os.path.isdir(f"{path}/events")), None)
