# SPDX-License-Identifier: Apache-2.0
"""Images into the kernel: makes maps, loads programs and attaches them. Each descriptor is kept."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cached_property

from trainprobe.bpf import abi, errors
from trainprobe.bpf.attach import syscalls
from trainprobe.bpf.compile.image import Image, MapShape
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load.kernel_calls import KernelCalls, ProgramRefused
from trainprobe.model.dataclass import dataclass

TRACEPOINT, RAW_TRACEPOINT, UPROBE, PERF_EVENT, TRACING = 5, 17, 2, 7, 26  # bpf_prog_type; uprobes are kprobes to BPF
_RAW = {
    "on_switch": "sched_switch",
    "on_fork": "sched_process_fork",
    "on_exec": "sched_process_exec",
    "on_exit": "sched_process_exit",
    "on_signal": "signal_generate",
    "on_request_done": "block_rq_complete",
    "on_timer": "hrtimer_expire_entry",
}
_EVENTS = {
    "on_file_fault": (("filemap", "mm_filemap_fault"),),
    "on_oom": (("oom", "mark_victim"),),
    "on_reclaim_begin": (
        ("vmscan", "mm_vmscan_direct_reclaim_begin"),
        ("vmscan", "mm_vmscan_memcg_reclaim_begin"),
        ("compaction", "mm_compaction_begin"),
    ),
    "on_reclaim_end": (
        ("vmscan", "mm_vmscan_direct_reclaim_end"),
        ("vmscan", "mm_vmscan_memcg_reclaim_end"),
        ("compaction", "mm_compaction_end"),
    ),
    "on_start_open": (("syscalls", "sys_exit_openat"),),
    "on_start_look": (("syscalls", "sys_exit_newfstatat"), ("syscalls", "sys_exit_getdents64")),
}
MARKS = frozenset((
    "on_backward", "on_graph_task", "on_backward_end", "on_record", "on_record_end",
    "on_set_grad", "on_set_grad_single", "on_inference", "on_inference_end",
    "on_collector", "on_collector_end", "on_finalize",
    "on_gpu_wait", "on_gpu_copy", "on_gpu_allocate", "on_gpu_free", "on_gpu_return",
    "on_gpu_graph", "on_gpu_upload", "on_gpu_kernel", "on_gpu_kernel_configured", "on_gpu_step", "on_release",
))  # fmt: skip
"""Programs of uprobes, which the parent attaches when a training needs them. All others are for events."""
GPU_TAILS = ("on_gpu_wait", "on_gpu_step")
"""Programs that others go over to, in the order of the map; it is empty once nobody holds its descriptor."""
MAPS = (
    "levels", "processes", "ledgers", "ledger_owners", "ledger_spare", "pools", "pool_target", "pool_owner",
    "lost", "ring", "skipped_devices",
    "calls", "files", "requests", "gpu_sites", "gpu_beats", "gpu_clocks", "gpu_tails",
    "alarms", "alarm_threads", "clock_seen", "held", "starts",
)  # fmt: skip
KEEPING = frozenset(("files", "gpu_calls", "gpu_beats", "gpu_sites"))
"""Of these maps the oldest entries go where there is no room; none may go that is in use."""
FREE_ENTRIES = 128  # LOCAL_FREE_TARGET of kernel/bpf/bpf_lru_list.c
OPTIONAL = frozenset((
    "on_clock", "on_file_fault", "on_oom", "on_reclaim_begin", "on_reclaim_end", "on_request_done", "on_timer",
    "on_start_open", "on_start_look", *syscalls.FAILING,
))  # fmt: skip


@dataclass
class Installed:
    """Descriptors by name, and what this kernel does not have."""

    maps: dict[str, int] = field(default_factory=dict)
    programs: dict[str, int] = field(default_factory=dict)
    attached: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def groups(self) -> dict[str, dict[str, int]]:
        handed = {name: self.maps[name] for name in MAPS if name in self.maps}
        return {"map": handed, "program": self.programs, "attached": self.attached}


class Installer:
    """Events first, then marks, which share their maps. Raises ProbesUnavailable, and has then left nothing behind of
    what that call was for."""

    def __init__(self, library: ctypes.CDLL, tracefs: str, types: Mapping[str, int]) -> None:
        """``types``: of the raw tracepoints whose programs read arguments by their types."""
        self.library, self.tracefs, self.types = library, tracefs, types
        self._maps: dict[str, int] = {}

    def events(self, image: Image) -> Installed:
        """Load and attach everything but the marks and page faults, which the parent attaches when they are wanted."""
        step = self._step(image)
        built = step.carry_out(step.make_maps, step.attach_events)
        self._maps = built.maps
        return built

    def marks(self, image: Image) -> Installed:
        """Load the marks; behind ``events``."""
        step = self._step(image)
        return step.carry_out(step.load_marks)

    def _step(self, image: Image) -> _Step:
        return _Step(self, image, self._maps)


class _Step:
    """One image on its way into the kernel."""

    def __init__(self, installer: Installer, image: Image, maps: Mapping[str, int]) -> None:
        self._library, self._tracefs, self._types = installer.library, installer.tracefs, installer.types
        self._calls, self._image, self._shared = KernelCalls(), image, maps
        self.built = Installed()

    def carry_out(self, *parts: Callable[[], None]) -> Installed:
        """What the parts have built; nothing of it stays where one of them fails."""
        try:
            for part in parts:
                part()
        except BaseException:
            for group in (self.built.attached, self.built.programs, self.built.maps):
                for descriptor in group.values():
                    os.close(descriptor)
                group.clear()
            raise
        return self.built

    def make_maps(self) -> None:
        for name, shape in self._image.maps.items():
            try:
                self.built.maps[name] = self._calls.create_map(name, with_room(name, shape, os.cpu_count() or 1))
            except OSError as error:
                reason = errors.NO_MAP(name=name, error=error.strerror)
                raise ProbesUnavailable(reason, errors.SEE_LIMIT()) from error

    def attach_events(self) -> None:
        left_out = () if has_hypervisor() else ("on_timer",)
        typed = (name for name, event in _RAW.items() if event in self._types)
        kinds = dict.fromkeys(self._image.programs, TRACEPOINT) | dict.fromkeys(
            (*_RAW, "on_page_fault"), RAW_TRACEPOINT
        )
        kinds |= dict.fromkeys(typed, TRACING) | dict.fromkeys(("on_major_fault", "on_clock"), PERF_EVENT)
        kinds = {name: kind for name, kind in kinds.items() if name not in left_out}
        self._load_all(kinds)
        for name, event in _RAW.items():
            if name in left_out:
                continue
            told = None if event in self._types else event
            self._attach(f"raw:{event} {name}", self._calls.attach_raw_tracepoint, told)
        for name, events in _EVENTS.items():
            for category, event in events:
                self._attach_event(name, category, event)
        self._attach_syscalls()
        self._attach_failures()
        self._attach_major_faults()
        self._attach_clock()

    def load_marks(self) -> None:
        self._load_all(dict.fromkeys(MARKS, UPROBE))
        for place, name in enumerate(GPU_TAILS):
            self._put("gpu_tails", place, struct.pack("=i", self.built.programs[name]))

    @cached_property
    def _map_descriptors(self) -> Mapping[str, int]:
        return {**self._shared, **self.built.maps}

    def _load_all(self, kinds: Mapping[str, int]) -> None:
        """Two at a time, the longest first: the verifier takes longer than all that is attached."""
        lengths = {name: len(code.instructions) for name, code in self._image.programs.items()}
        waiting = deque(sorted(kinds, key=lambda name: -lengths.get(name, 0)))
        refused: list[ProbesUnavailable] = []

        def work() -> None:
            with suppress(IndexError):
                while not refused:
                    name = waiting.popleft()
                    try:
                        self.built.programs[name] = self._load(name, kinds[name])
                    except ProbesUnavailable as error:
                        refused.append(error)

        beside = threading.Thread(target=work)
        beside.start()
        work()
        beside.join()
        if refused:
            raise refused[0]

    def _load(self, name: str, kind: int) -> int:
        try:
            instructions = self._image.programs[name].with_maps(self._map_descriptors)
            event = self._types[_RAW[name]] if kind == TRACING else 0
            return self._calls.load_program(kind, name, instructions, self._image.license, event)
        except LookupError as error:
            raise ProbesUnavailable(errors.LACKING(name=str(error)), errors.TELL()) from error
        except ProgramRefused as refused:
            print(refused.log)
            reason = errors.NO_PROGRAM(name=name, error=str(refused))
            raise ProbesUnavailable(reason, errors.SEE_ABOVE()) from refused

    def _program(self, name: str) -> int:
        try:
            return self.built.programs[name]
        except KeyError as error:
            raise ProbesUnavailable(errors.LACKING(name=str(error)), errors.TELL()) from error

    def _put(self, name: str, key: int, value: bytes) -> None:
        descriptor, at = self._map_descriptors[name], ctypes.c_uint32(key)
        if self._library.bpf_map_update_elem(descriptor, ctypes.byref(at), value, 0) != 0:
            raise ProbesUnavailable(errors.NO_ENTRY(name=name), errors.SEE_LOG())

    def _attach(self, label: str, attach: Callable[..., int], *where: object) -> None:
        """Attach a program there. ``label``: the event and the program."""
        event, _, name = label.partition(" ")
        program = self._program(name)
        try:
            self.built.attached[label] = attach(program, *where)
        except OSError as error:
            if name not in OPTIONAL:
                print(f"{label}: {error.strerror}")
                raise ProbesUnavailable(errors.NO_EVENT(event=label), errors.AS_ROOT_OR_LOG()) from error
            self.built.missing.append(event)

    def _attach_event(self, name: str, category: str, event: str) -> None:
        if os.path.isdir(f"{self._tracefs}/events/{category}/{event}"):
            where = (self._tracefs, category, event)
            self._attach(f"{category}:{event} {name}", self._calls.attach_tracepoint, *where)
        else:
            self.built.missing.append(f"{category}:{event}")

    def _attach_syscalls(self) -> None:
        events = os.listdir(f"{self._tracefs}/events/syscalls")
        names = frozenset(event[10:] for event in events if event.startswith("sys_enter_"))
        self._put("call_kinds", 0, syscalls.descriptions(dict(_numbered(syscalls.TABLE))))
        for syscall, _ in _numbered(syscalls.TABLE):
            event = syscalls.event_name(syscall, names)
            if event is None:
                if syscall.call in syscalls.TRACED_BY and syscall.name not in syscalls.NOT_TRACED:
                    self.built.missing.append(f"syscalls:{syscall.name}")
                continue
            family = syscalls.TRACED_BY[syscall.call]
            if syscall.call == abi.Call.SUBMIT:
                self._attach_event("on_submit_begin", "syscalls", f"sys_enter_{event}")
            for edge, prefix in (("end", "sys_exit"), ("begin", "sys_enter")):
                self._attach_event(f"on_{family}_{edge}", "syscalls", f"{prefix}_{event}")

    def _attach_failures(self) -> None:
        for name, calls in syscalls.FAILING.items():
            for syscall, _ in _numbered(calls):
                self._attach_event(name, "syscalls", f"sys_exit_{syscall.name}")

    def _attach_major_faults(self) -> None:
        major_faults = 6  # PERF_COUNT_SW_PAGE_FAULTS_MAJ
        for cpu in _online_cpus():
            label = f"page-faults-maj:{cpu} on_major_fault"
            self._attach(label, self._calls.attach_software_event, major_faults, 1, cpu)

    def _attach_clock(self) -> None:
        """On one processor: a clock that the parent lets run while it looks seldom."""
        cpu_clock, cpu = 0, next(iter(_online_cpus()))  # PERF_COUNT_SW_CPU_CLOCK
        self._attach(abi.CLOCK, self._calls.attach_software_event, cpu_clock, abi.CLOCK_TICK_NS, cpu)


def with_room(name: str, shape: MapShape, cpus: int) -> MapShape:
    """Each processor takes so many free entries for itself (fewer since d4adf1c9ee77). One that finds none left takes
    those that others use, the latest too, however many lie idle elsewhere."""
    return shape._replace(entries=shape.entries + FREE_ENTRIES * cpus) if name in KEEPING else shape


def has_hypervisor(cpus: str = "/proc/cpuinfo") -> bool:
    """Whether somebody may take the processors away; elsewhere nobody has to look at the timers. Only x86 tells."""
    try:
        with open(cpus, encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return False
    return "hypervisor" in flags.split()


def _numbered(calls: Iterable[syscalls.Syscall]) -> Iterator[tuple[syscalls.Syscall, int]]:
    """Those that this machine has, with their numbers."""
    machine = os.uname().machine
    for syscall in calls:
        number = syscall.number(machine)
        if number is not None:
            yield syscall, number


def _online_cpus() -> Iterator[int]:
    with open("/sys/devices/system/cpu/online", encoding="ascii") as file:
        for part in file.read().strip().split(","):
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)
