# SPDX-License-Identifier: Apache-2.0
"""The system calls that libbpf does not wrap as we need them: maps and programs from an image, what attaches programs,
their statistics, and maps in batches."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from ctypes import Array, Structure, addressof, byref, c_int, c_long, c_uint32, c_uint64, sizeof
from typing import Any

MapShape = tuple[int, int, int, int, int]
"""Kind, sizes of key and value, entries, flags."""
LOG_BYTES = 1 << 20


class _Attributes(Structure):
    """struct perf_event_attr up to config2 (PERF_ATTR_SIZE_VER1)."""

    _fields_ = [
        *((name, c_uint32) for name in ("type", "size")),
        *((name, c_uint64) for name in ("config", "period", "sample_type", "read_format", "flags")),
        *((name, c_uint32) for name in ("wakeup", "bp_type")),
        *((name, c_uint64) for name in ("config1", "config2")),
    ]


class _Batch(Structure):
    """union bpf_attr of BPF_MAP_*_BATCH."""

    _fields_ = [
        *((name, c_uint64) for name in ("from_position", "position", "keys", "values")),
        *((name, c_uint32) for name in ("count", "map")),
        *((name, c_uint64) for name in ("element_flags", "flags")),
    ]


class UprobeRefused(Exception):
    """The kernel refused a uprobe; the message says why."""


class ProgramRefused(Exception):
    """The kernel refused a program. ``log``: the verifier's last words."""

    def __init__(self, number: int, log: str) -> None:
        super().__init__(os.strerror(number))
        self.log = log


def _refused(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


class KernelCalls:
    """bpf(2) and perf_event_open(2) by number."""

    _NUMBERS = {"x86_64": (321, 298), "aarch64": (280, 241)}  # bpf, perf_event_open
    _SET_BPF, _ENABLE = 0x40042408, 0x2400  # PERF_EVENT_IOC_*
    _SOFTWARE, _TRACEPOINT = 1, 2  # perf_type_id
    _COUNTER_SHIFT = 32  # PERF_UPROBE_REF_CTR_OFFSET_SHIFT
    _MAP_CREATE, _PROG_LOAD, _GET_INFO_BY_FD, _RAW_TRACEPOINT_OPEN, _LOOKUP_BATCH = 0, 5, 15, 17, 24
    _NAME_BYTES = 16  # BPF_OBJ_NAME_LEN, with its end
    _ARRAY = 2  # BPF_MAP_TYPE_ARRAY
    _TRACE_RAW_TP = 23  # bpf_attach_type
    _RUN_TIME_AT = 192  # bpf_prog_info.run_time_ns, run_cnt behind it

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = c_long
        self._bpf, self._perf_event_open = self._NUMBERS.get(os.uname().machine, (-1, -1))

    def bpf_refused(self) -> int:
        """The error number with which the kernel refuses to make the smallest of maps; 0: it makes it."""
        attributes = ctypes.create_string_buffer(struct.pack("=IIII", self._ARRAY, 4, 4, 1), 128)
        size = c_uint32(len(attributes))
        descriptor = self._libc.syscall(c_long(self._bpf), c_int(self._MAP_CREATE), attributes, size)
        if descriptor < 0:
            return ctypes.get_errno()
        os.close(descriptor)
        return 0

    def create_map(self, name: str, shape: MapShape) -> int:
        """Its descriptor; raises OSError."""
        ours = name.encode()[: self._NAME_BYTES - 1]
        no_inner_map, no_node = 0, 0
        told = struct.pack("=7I16s", *shape, no_inner_map, no_node, ours)
        return self._call_bpf(self._MAP_CREATE, ctypes.create_string_buffer(told, 128))

    def map_shape(self, descriptor: int) -> MapShape:
        info = ctypes.create_string_buffer(256)
        told = struct.pack("=IIQ", descriptor, len(info), addressof(info))
        self._call_bpf(self._GET_INFO_BY_FD, ctypes.create_string_buffer(told, 128))
        kind, _, key, value, entries, flags = struct.unpack_from("=6I", info.raw)
        return kind, key, value, entries, flags

    def load_program(self, kind: int, name: str, instructions: bytes, terms: str, event: int = 0) -> int:
        """``terms``: the licence it is under. ``event``: the type of the raw tracepoint, of a program that reads its
        arguments by their types. Its descriptor; raises ProgramRefused."""
        try:
            return self._load(kind, name, instructions, terms, event, None)
        except OSError:
            log = ctypes.create_string_buffer(LOG_BYTES)
            try:
                return self._load(kind, name, instructions, terms, event, log)
            except OSError as error:
                raise ProgramRefused(error.errno or 0, log.value.decode(errors="replace")) from error

    def _load(self, kind: int, name: str, instructions: bytes, terms: str, event: int, log: Array[Any] | None) -> int:
        code, licence = ctypes.create_string_buffer(instructions), ctypes.create_string_buffer(terms.encode())
        level, size, place = (1, len(log), addressof(log)) if log else (0, 0, 0)
        count, no_version, no_flags, no_device = len(instructions) // 8, 0, 0, 0
        ours = name.encode()[: self._NAME_BYTES - 1]
        told = struct.pack(
            "=IIQQIIQII16sII36xI",
            *(kind, count, addressof(code), addressof(licence), level, size, place, no_version, no_flags, ours),
            *(no_device, self._TRACE_RAW_TP if event else 0, event),
        )
        return self._call_bpf(self._PROG_LOAD, ctypes.create_string_buffer(told, 128))

    def _call_bpf(self, command: int, attributes: Array[Any]) -> int:
        found = int(self._libc.syscall(c_long(self._bpf), c_int(command), attributes, c_uint32(len(attributes))))
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return found

    def attach_raw_tracepoint(self, program: int, event: str | None) -> int:
        """``event`` None: the one for whose types the program was loaded. Its descriptor; raises OSError."""
        name = ctypes.create_string_buffer(event.encode()) if event is not None else None
        told = struct.pack("=QI", addressof(name) if name else 0, program)
        return self._call_bpf(self._RAW_TRACEPOINT_OPEN, ctypes.create_string_buffer(told, 128))

    def attach_tracepoint(self, program: int, tracefs: str, category: str, event: str) -> int:
        """Its descriptor; raises OSError."""
        with open(f"{tracefs}/events/{category}/{event}/id", encoding="ascii") as file:
            number = int(file.read())
        return self._attach_event(program, _Attributes(type=self._TRACEPOINT, config=number, period=1))

    def attach_software_event(self, program: int, event: int, period: int, cpu: int) -> int:
        """To each ``period`` of a processor's PERF_COUNT_SW_*. Its descriptor; raises OSError."""
        attributes = _Attributes(type=self._SOFTWARE, config=event, period=period)
        return self._attach_event(program, attributes, cpu=cpu)

    def attach_uprobe(
        self, program: int, path: str, offset: int, counter: int = 0, pid: int | None = None, *, at_return: bool = False
    ) -> int:
        """A perf event for every process that executes this place of the file, or for one; returns its descriptor.

        ``counter``: where in the file a USDT probe has its semaphore, which the kernel raises meanwhile (0: none).
        ``at_return``: when the function that begins there returns.
        """
        try:
            with open("/sys/bus/event_source/devices/uprobe/type", encoding="ascii") as file:
                kind = int(file.read())
        except OSError as error:
            raise UprobeRefused("this kernel has no uprobes") from error
        name = ctypes.create_string_buffer(os.fsencode(path))
        attributes = _Attributes(
            type=kind,
            config=counter << self._COUNTER_SHIFT | at_return,  # bit 0: format/retprobe of the uprobe source
            config1=ctypes.addressof(name),
            config2=offset,
        )
        who, cpu = (-1, 0) if pid is None else (pid, -1)
        try:
            return self._attach_event(program, attributes, who, cpu)
        except OSError as error:
            raise UprobeRefused(error.strerror) from error

    def _attach_event(self, program: int, attributes: _Attributes, pid: int = -1, cpu: int = 0) -> int:
        attributes.size, close_on_exec = sizeof(attributes), ctypes.c_ulong(8)
        descriptor = self._libc.syscall(
            c_long(self._perf_event_open), byref(attributes), c_int(pid), c_int(cpu), c_int(-1), close_on_exec
        )
        if descriptor < 0:
            raise _refused("perf_event_open")
        for request, argument in ((self._SET_BPF, program), (self._ENABLE, 0)):
            if self._libc.ioctl(c_int(descriptor), ctypes.c_ulong(request), c_int(argument)) != 0:
                error = _refused("PERF_EVENT_IOC")
                os.close(descriptor)
                raise error
        return int(descriptor)

    def lookup_batch(
        self, map_descriptor: int, start: c_uint64 | None, position: c_uint64, keys: Array[Any], values: Array[Any]
    ) -> tuple[int, int]:
        """Read as many entries as there is room for, from ``start`` (None: the first) on, and set ``position`` behind
        them. (entries, error number; ENOENT: these were the last)."""
        batch = _Batch(
            from_position=addressof(start) if start is not None else 0,
            position=addressof(position),
            keys=addressof(keys),
            values=addressof(values),
            count=len(keys),
            map=map_descriptor,
        )
        failed = self._libc.syscall(c_long(self._bpf), c_int(self._LOOKUP_BATCH), byref(batch), c_uint32(sizeof(batch)))
        error = ctypes.get_errno() if failed else 0
        return (batch.count if error in (0, errno.ENOENT) else 0), error

    def run_statistics(self, program: int) -> tuple[int, int]:
        """(nanoseconds, runs) of a program; both 0 while kernel.bpf_stats_enabled is 0."""
        info = ctypes.create_string_buffer(256)
        attributes = ctypes.create_string_buffer(struct.pack("=IIQ", program, len(info), ctypes.addressof(info)), 128)
        command, size = c_int(self._GET_INFO_BY_FD), c_uint32(len(attributes))
        if self._libc.syscall(c_long(self._bpf), command, attributes, size) != 0:
            return 0, 0
        nanoseconds, runs = struct.unpack_from("=QQ", info.raw, self._RUN_TIME_AT)
        return nanoseconds, runs
