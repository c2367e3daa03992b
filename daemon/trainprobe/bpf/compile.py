# SPDX-License-Identifier: Apache-2.0
"""The compiler's child: ``python -m trainprobe.bpf.compile SOCKET [--auto]``.

Compiles, loads and attaches all programs with BCC, hands every descriptor that matters over the socket, and dies. The
compiler (LLVM) costs 120 MB; the parent never loads it. Attachments live as long as somebody holds their descriptors.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from trainprobe.bpf import abi, alarms, handover, kernel_types, syscalls
from trainprobe.bpf.btf import Btf, BtfError
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.kernel_calls import KernelCalls

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = (
    "core",
    "alarms",
    "descriptors",
    "sched",
    "faults",
    "files",
    "failures",
    "calls",
    "marks",
    "gpu",
    "lives",
    "disks",
)
TRACEPOINT, RAW_TRACEPOINT, UPROBE, PERF_EVENT = 5, 17, 2, 7  # bpf_prog_type; uprobes are kprobes to BPF
_RAW = {
    "on_switch": "sched_switch",
    "on_wakeup": "sched_wakeup",
    "on_fork": "sched_process_fork",
    "on_exec": "sched_process_exec",
    "on_exit": "sched_process_exit",
    "on_signal": "signal_generate",
    "on_request_done": "block_rq_complete",
}
_EVENTS = {
    "on_file_fault": (("filemap", "mm_filemap_fault"),),
    "on_oom": (("oom", "mark_victim"),),
    "on_reclaim_begin": (("vmscan", "mm_vmscan_direct_reclaim_begin"), ("vmscan", "mm_vmscan_memcg_reclaim_begin")),
    "on_reclaim_end": (("vmscan", "mm_vmscan_direct_reclaim_end"), ("vmscan", "mm_vmscan_memcg_reclaim_end")),
}
MARKS = (
    "on_backward", "on_graph_task", "on_backward_end", "on_record", "on_record_end",
    "on_set_grad", "on_set_grad_single", "on_collector", "on_collector_end",
    "on_gpu_wait", "on_gpu_copy", "on_gpu_allocate", "on_gpu_free", "on_gpu_return",
    "on_gpu_graph", "on_gpu_upload", "on_gpu_kernel", "on_gpu_kernel_configured", "on_gpu_step",
)  # fmt: skip
MAPS = (
    "levels", "processes", "ledgers", "pools", "pool_target", "pool_owner", "lost", "ring", "skipped_devices",
    "calls", "files", "requests", "gpu_sites", "gpu_beats", "gpu_clocks", "gpu_tails",
    "alarms", "alarm_threads", "clock_seen",
)  # fmt: skip
GPU_TAILS = ("on_gpu_wait", "on_gpu_step")
"""Programs that others go over to, in the order of the map; it is empty once nobody holds its descriptor."""
OPTIONAL = frozenset(
    ("on_clock", "on_file_fault", "on_oom", "on_reclaim_begin", "on_reclaim_end", "on_request_done", *syscalls.FAILING)
)


@dataclass
class Built:
    """Descriptors by name, and what this kernel does not have."""

    maps: dict[str, int] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)
    attached: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def source_text() -> str:
    """All programs as one translation unit, with #line directives so that errors name the right file."""
    parts = []
    for name in SOURCES:
        path = f"{HERE}/src/{name}.bpf.c"
        with open(path, encoding="utf-8") as file:
            parts.append(f'#line 1 "{name}.bpf.c"\n{file.read()}')
    return "\n".join(parts)


def compiler_flags(tracefs: str, *, auto: bool) -> list[str]:
    """Everything the C side is told: numbers of the ABI, offsets of this kernel."""
    try:
        with Btf.of_kernel() as btf:
            flags = kernel_types.member_flags(btf)
    except BtfError as error:
        remedy = "boot a kernel with CONFIG_DEBUG_INFO_BTF=y"
        raise ProbesUnavailable(f"the kernel has no type information: {error}", remedy) from error
    except kernel_types.MissingMember as error:
        raise ProbesUnavailable(f"this kernel has no {error}", "report this kernel's version to the project") from error
    flags += kernel_types.field_flags(tracefs)
    flags += kernel_types.function_flags(kernel_types.read_kallsyms())
    flags += abi.defines()
    flags += [f"-DTID_ROOM={kernel_types.tid_room()}", f"-I{HERE}/src/include", "-Wno-macro-redefined", "-g0"]
    return flags + (["-DAUTO"] if auto else [])


class Builder:
    """One BCC module: loads each program and attaches it by hand, so that every descriptor is ours to give away."""

    def __init__(self, bcc: Any, tracefs: str, flags: list[str]) -> None:
        self._bcc, self._tracefs = bcc, tracefs
        self._module = bcc.BPF(text=source_text().encode(), cflags=flags)
        self.built = Built()

    def run(self) -> Built:
        """Load and attach everything but the marks and page faults, which the parent attaches when they are wanted."""
        for name, event in _RAW.items():
            program = self._load(name, RAW_TRACEPOINT)
            self._keep(name, f"raw:{event}", self._bcc.lib.bpf_attach_raw_tracepoint(program, event.encode()))
        for name, events in _EVENTS.items():
            program = self._load(name, TRACEPOINT)
            for category, event in events:
                self._attach_event(name, program, category, event)
        self._attach_syscalls()
        self._attach_failures()
        self._attach_major_faults()
        self._attach_clock()
        self._load("on_page_fault", RAW_TRACEPOINT)
        for name in MARKS:
            self._load(name, UPROBE)
        tails = self._module[b"gpu_tails"]
        for place, name in enumerate(GPU_TAILS):
            tails[ctypes.c_int(place)] = ctypes.c_int(self.built.programs[name])
        for name in MAPS:
            self.built.maps[name] = self._bcc.lib.bpf_table_fd(self._module.module, name.encode())
        return self.built

    def _load(self, name: str, kind: int) -> int:
        descriptor: int = self._module.load_func(name.encode(), kind).fd
        self.built.programs[name] = descriptor
        return descriptor

    def _keep(self, program: str, label: str, descriptor: int) -> None:
        if descriptor >= 0:
            self.built.attached[label] = descriptor
        elif program in OPTIONAL:
            self.built.missing.append(label)
        else:
            raise ProbesUnavailable(f"the kernel refused to attach {label}", "run as root; see the kernel log")

    def _attach_event(self, name: str, program: int, category: str, event: str) -> None:
        label = f"{category}:{event}"
        if not os.path.isdir(f"{self._tracefs}/events/{category}/{event}"):
            self.built.missing.append(label)
            return
        self._keep(name, label, self._bcc.lib.bpf_attach_tracepoint(program, category.encode(), event.encode()))

    def _attach_syscalls(self) -> None:
        events = os.listdir(f"{self._tracefs}/events/syscalls")
        names = frozenset(event[10:] for event in events if event.startswith("sys_enter_"))
        programs = {
            (family, edge): self._load(f"on_{family}_{edge}", TRACEPOINT)
            for family in ("read", "write", "name")
            for edge in ("begin", "end")
        }
        table = self._module[b"call_kinds"]
        machine = os.uname().machine
        for syscall in syscalls.TABLE:
            number = syscall.number(machine)
            if number is None:
                continue
            table[ctypes.c_int(number)] = table.Leaf(int(syscall.call), syscall.form)
            event = syscalls.event_name(syscall, names)
            if event is None:
                if syscall.call in syscalls.TRACED_BY and syscall.name not in syscalls.NOT_TRACED:
                    self.built.missing.append(f"syscalls:{syscall.name}")
                continue
            family = syscalls.TRACED_BY[syscall.call]
            for edge, prefix in (("end", "sys_exit"), ("begin", "sys_enter")):
                self._attach_event(f"on_{family}_{edge}", programs[family, edge], "syscalls", f"{prefix}_{event}")

    def _attach_failures(self) -> None:
        machine = os.uname().machine
        for name, calls in syscalls.FAILING.items():
            program = self._load(name, TRACEPOINT)
            for syscall in calls:
                if syscall.number(machine) is not None:
                    self._attach_event(name, program, "syscalls", f"sys_exit_{syscall.name}")

    def _attach_major_faults(self) -> None:
        program = self._load("on_major_fault", PERF_EVENT)
        software, major_faults = 1, 6  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ
        for cpu in _online_cpus():
            descriptor = self._bcc.lib.bpf_attach_perf_event(program, software, major_faults, 1, 0, -1, cpu, -1)
            self._keep("on_major_fault", f"page-faults-maj:{cpu}", descriptor)

    def _attach_clock(self) -> None:
        """On one processor: a clock that the parent lets run while it looks seldom."""
        program = self._load("on_clock", PERF_EVENT)
        software, cpu_clock = 1, 0  # PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK
        cpu = next(iter(_online_cpus()))
        descriptor = self._bcc.lib.bpf_attach_perf_event(program, software, cpu_clock, alarms.TICK_NS, 0, -1, cpu, -1)
        self._keep("on_clock", alarms.CLOCK, descriptor)


def _online_cpus() -> Iterator[int]:
    with open("/sys/devices/system/cpu/online", encoding="ascii") as file:
        for part in file.read().strip().split(","):
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)


def _require_capabilities() -> None:
    """BPF says only "Operation not permitted"; say which capability is missing instead."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    if effective >> 21 & 1:  # CAP_SYS_ADMIN implies the others
        return
    missing = [name for name, bit in (("CAP_PERFMON", 38), ("CAP_BPF", 39)) if not effective >> bit & 1]
    if missing:
        raise ProbesUnavailable(f"no permission for eBPF: {' and '.join(missing)} missing", "run as root")


def _require_bpf() -> None:
    """With every capability the call may still be refused; say by whom, before the compiler says it in its own way."""
    number = KernelCalls().bpf_refused()
    if not number:
        return
    reason = f"cannot tell where time goes because bpf() is refused here: {os.strerror(number)}"
    if number == errno.ENOSYS:
        raise ProbesUnavailable(reason, "boot a kernel with CONFIG_BPF_SYSCALL=y")
    if _filtered():
        raise ProbesUnavailable(
            f"{reason}, by a seccomp filter",
            "run trainprobe on the host, beside the container; else allow bpf and perf_event_open: in docker or podman "
            "--security-opt seccomp=unconfined, in a systemd unit SystemCallFilter=bpf perf_event_open",
        )
    raise ProbesUnavailable(reason, "see /sys/kernel/security/lockdown, ulimit -l and the kernel log")


def _filtered() -> bool:
    """Whether a seccomp filter decides about our system calls."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return any(line.split() == ["Seccomp:", "2"] for line in file)


def _mount_tracefs() -> str:
    """Hosts without systemd boot without it."""
    target = kernel_types.TRACEFS[0]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", target.encode(), b"tracefs", ctypes.c_ulong(0), None) != 0:
        reason = f"tracefs is not mounted and cannot be: {os.strerror(ctypes.get_errno())}"
        raise ProbesUnavailable(reason, f"mount -t tracefs none {target}")
    return target


def build(*, auto: bool) -> Built:
    """Compile and attach everything; raises ProbesUnavailable with what to do about it."""
    _require_capabilities()
    _require_bpf()
    tracefs = kernel_types.find_tracefs() or _mount_tracefs()
    flags = compiler_flags(tracefs, auto=auto)
    os.environ["BCC_KERNEL_SOURCE"] = f"{HERE}/src/stub"
    try:
        import bcc
    except ImportError as error:
        remedy = "apt-get install python3-bpfcc, and run with the distribution's /usr/bin/python3"
        raise ProbesUnavailable(f"BCC cannot be imported: {error}", remedy) from error
    if not hasattr(bcc, "BPF"):
        remedy = "uninstall PyPI's bcc; apt-get install python3-bpfcc"
        raise ProbesUnavailable("the module bcc is not the BPF compiler", remedy)
    return Builder(bcc, tracefs, flags).run()


def main(arguments: list[str]) -> int:
    channel = socket.socket(fileno=int(arguments[0]))
    try:
        built = build(auto="--auto" in arguments)
        groups = {"map": built.maps, "program": built.programs, "attached": built.attached}
        handover.send(channel, groups, built.missing)
    except ProbesUnavailable as error:
        handover.refuse(channel, error.reason, error.remedy)
        return 1
    except Exception as error:
        reason = f"compiling the probes failed: {type(error).__name__}: {error}"
        handover.refuse(channel, reason, "see the text above; is the kernel older than 5.15?")
        return 1
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # BCC's own clean-up would disable the perf events that the parent now holds
