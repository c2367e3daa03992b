# SPDX-License-Identifier: Apache-2.0
"""The parent's side of BPF: maps, ring buffer and perf events by descriptor, through libbcc_bpf alone (no LLVM)."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from ctypes import Structure, byref, c_char_p, c_int, c_long, c_uint32, c_uint64, c_void_p, sizeof
from typing import Generic, TypeVar, cast

from trainprobe.bpf import handover
from trainprobe.bpf.errors import ProbesUnavailable

START_LIMIT_S = 60.0
BATCH = 64
MAX_ITEMS = 1 << 16
K = TypeVar("K", bound="c_uint32 | Structure")
V = TypeVar("V", bound="ctypes._SimpleCData[int] | Structure")
_ANY, _NOEXIST = 0, 1
_RING_CALLBACK = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)


def _library() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL("libbcc_bpf.so.0", use_errno=True)
    except OSError as error:
        raise ProbesUnavailable(f"libbcc_bpf cannot be loaded: {error}", "apt-get install python3-bpfcc") from error
    lib.bpf_update_elem.argtypes = [c_int, c_void_p, c_void_p, c_uint64]
    lib.bpf_lookup_elem.argtypes = [c_int, c_void_p, c_void_p]
    lib.bpf_delete_elem.argtypes = [c_int, c_void_p]
    lib.bpf_lookup_and_delete.argtypes = [c_int, c_void_p, c_void_p]
    lib.bpf_lookup_batch.argtypes = [c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]
    lib.bpf_new_ringbuf.restype = c_void_p
    lib.bpf_new_ringbuf.argtypes = [c_int, _RING_CALLBACK, c_void_p]
    lib.bpf_consume_ringbuf.argtypes = [c_void_p]
    lib.bpf_free_ringbuf.argtypes = [c_void_p]
    lib.bpf_free_ringbuf.restype = None
    lib.bpf_attach_raw_tracepoint.argtypes = [c_int, c_char_p]
    return lib


class Map(Generic[K, V]):
    """A hash or array map. Values are copies: what the kernel changes later is not seen."""

    def __init__(self, lib: ctypes.CDLL, descriptor: int, key: type[K], value: type[V]) -> None:
        self._lib, self.descriptor, self._key, self._value = lib, descriptor, key, value

    def get(self, key: K) -> V | None:
        value = self._value()
        return value if self._lib.bpf_lookup_elem(self.descriptor, byref(key), byref(value)) == 0 else None

    def put(self, key: K, value: V) -> bool:
        return bool(self._lib.bpf_update_elem(self.descriptor, byref(key), byref(value), _ANY) == 0)

    def insert(self, key: K, value: V) -> bool:
        """False where the key is there already (or the map is full)."""
        return bool(self._lib.bpf_update_elem(self.descriptor, byref(key), byref(value), _NOEXIST) == 0)

    def delete(self, key: K) -> bool:
        return bool(self._lib.bpf_delete_elem(self.descriptor, byref(key)) == 0)

    def take(self, key: K) -> V | None:
        """Read and delete at once, so that nothing added in between is lost (Linux 5.14; else nearly at once)."""
        value = self._value()
        if self._lib.bpf_lookup_and_delete(self.descriptor, byref(key), byref(value)) == 0:
            return value
        found = self.get(key)
        return found if found is not None and self.delete(key) else None

    def items(self) -> list[tuple[K, V]]:
        """All entries, read in batches; what comes and goes meanwhile may be missed or met twice."""
        keys, values = (self._key * BATCH)(), (self._value * BATCH)()
        position, count = c_uint64(), c_uint32()
        found: list[tuple[K, V]] = []
        start = None
        while len(found) < MAX_ITEMS:
            count.value = BATCH
            ended = self._lib.bpf_lookup_batch(self.descriptor, start, byref(position), keys, values, byref(count)) != 0
            taken = count.value if not ended or ctypes.get_errno() == errno.ENOENT else 0
            found += [
                (
                    cast(K, self._key.from_buffer_copy(keys, index * sizeof(self._key))),
                    cast(V, self._value.from_buffer_copy(values, index * sizeof(self._value))),
                )
                for index in range(taken)
            ]
            if ended:
                break
            start = byref(position)
        return found


class Levels:
    """The byte per thread id, mapped: a single byte can be set without touching its neighbours."""

    def __init__(self, descriptor: int, room: int) -> None:
        self._memory = mmap.mmap(descriptor, room)
        self._room = room

    def __getitem__(self, tid: int) -> int:
        return self._memory[tid] if 0 <= tid < self._room else 0

    def __setitem__(self, tid: int, level: int) -> None:
        if 0 <= tid < self._room:
            self._memory[tid] = level

    def close(self) -> None:
        self._memory.close()


class Ring:
    """The ring buffer; messages are copied out, nothing is decoded here: a ctypes callback swallows exceptions."""

    def __init__(self, lib: ctypes.CDLL, descriptor: int) -> None:
        self._lib, self.descriptor = lib, descriptor
        self._messages: list[bytes] = []
        take: Callable[[bytes], None] = lambda message: self._messages.append(message)  # noqa: E731
        string_at = ctypes.string_at

        def receive(_context: int, data: int, size: int) -> int:
            take(string_at(data, size))
            return 0

        self._callback = _RING_CALLBACK(receive)
        address = lib.bpf_new_ringbuf(descriptor, self._callback, None)
        if not address:
            raise ProbesUnavailable("the ring buffer cannot be mapped", "see the memory limits of this process")
        self._ring = c_void_p(address)

    def drain(self) -> list[bytes]:
        self._lib.bpf_consume_ringbuf(self._ring)
        taken, self._messages = self._messages, []
        return taken

    def close(self) -> None:
        self._lib.bpf_free_ringbuf(self._ring)


class _Attributes(Structure):
    """struct perf_event_attr up to config2 (PERF_ATTR_SIZE_VER1)."""

    _fields_ = [
        ("type", c_uint32),
        ("size", c_uint32),
        ("config", c_uint64),
        ("period", c_uint64),
        ("sample_type", c_uint64),
        ("read_format", c_uint64),
        ("flags", c_uint64),
        ("wakeup", c_uint32),
        ("bp_type", c_uint32),
        ("config1", c_uint64),
        ("config2", c_uint64),
    ]


class UprobeRefused(Exception):
    """The kernel refused a uprobe; the message says why."""


class Kernel:
    """The system calls that libbcc_bpf does not wrap."""

    _NUMBERS = {"x86_64": (321, 298), "aarch64": (280, 241)}  # bpf, perf_event_open
    _SET_BPF, _ENABLE, _DISABLE = 0x40042408, 0x2400, 0x2401  # PERF_EVENT_IOC_*
    _GET_INFO_BY_FD = 15
    _RUN_TIME_AT = 192  # bpf_prog_info.run_time_ns, run_cnt behind it

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = c_long
        self._bpf, self._perf_event_open = self._NUMBERS.get(os.uname().machine, (-1, -1))

    def attach_uprobe(self, program: int, path: str, offset: int) -> int:
        """A perf event for every process that executes this place of the file; returns its descriptor."""
        try:
            with open("/sys/bus/event_source/devices/uprobe/type", encoding="ascii") as file:
                kind = int(file.read())
        except OSError as error:
            raise UprobeRefused("this kernel has no uprobes") from error
        name = ctypes.create_string_buffer(os.fsencode(path))
        attributes = _Attributes(type=kind, size=sizeof(_Attributes), config1=ctypes.addressof(name), config2=offset)
        close_on_exec = 8
        everybody, cpu, no_group = c_int(-1), c_int(0), c_int(-1)
        descriptor = self._libc.syscall(
            c_long(self._perf_event_open), byref(attributes), everybody, cpu, no_group, ctypes.c_ulong(close_on_exec)
        )
        if descriptor < 0:
            raise UprobeRefused(f"perf_event_open: {os.strerror(ctypes.get_errno())}")
        for request, argument in ((self._SET_BPF, program), (self._ENABLE, 0)):
            if self._libc.ioctl(c_int(descriptor), ctypes.c_ulong(request), c_int(argument)) != 0:
                reason = os.strerror(ctypes.get_errno())
                os.close(descriptor)
                raise UprobeRefused(f"PERF_EVENT_IOC: {reason}")
        return int(descriptor)

    def disable(self, descriptor: int) -> None:
        """Stop a perf event at once; closing it waits for a grace period."""
        self._libc.ioctl(c_int(descriptor), ctypes.c_ulong(self._DISABLE), c_int(0))

    def run_statistics(self, program: int) -> tuple[int, int]:
        """(nanoseconds, runs) of a program; both 0 while kernel.bpf_stats_enabled is 0."""
        info = ctypes.create_string_buffer(256)
        attributes = ctypes.create_string_buffer(struct.pack("=IIQ", program, len(info), ctypes.addressof(info)), 128)
        command, size = c_int(self._GET_INFO_BY_FD), c_uint32(len(attributes))
        if self._libc.syscall(c_long(self._bpf), command, attributes, size) != 0:
            return 0, 0
        nanoseconds, runs = struct.unpack_from("=QQ", info.raw, self._RUN_TIME_AT)
        return nanoseconds, runs


class Loaded:
    """What the compiler's child handed over."""

    def __init__(self, groups: dict[str, dict[str, int]], missing: list[str]) -> None:
        self.maps = groups.get("map", {})
        self.programs = groups.get("program", {})
        self.attached = groups.get("attached", {})
        self.missing = missing
        try:
            self.lib = _library()
        except ProbesUnavailable:
            self.close()
            raise

    def map(self, name: str, key: type[K], value: type[V]) -> Map[K, V]:
        return Map(self.lib, self.maps[name], key, value)

    def attach_raw(self, program: str, event: str) -> int:
        """Attach a raw tracepoint; returns its descriptor, negative where the kernel has no such event."""
        return int(self.lib.bpf_attach_raw_tracepoint(self.programs[program], event.encode()))

    def close(self) -> None:
        """Let go of everything. The last close of a tracepoint waits for a grace period of 70 ms, 70 times: a child
        that nobody waits for holds the descriptors open and does the waiting."""
        kernel = Kernel()
        for descriptor in self.attached.values():
            kernel.disable(descriptor)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for descriptor in self.attached.values():
                    os.close(descriptor)
            os._exit(0)
        os.wait3(0)
        for group in (self.attached, self.programs, self.maps):
            for descriptor in group.values():
                os.close(descriptor)
            group.clear()


def load(*, auto: bool) -> Loaded:
    """Run the compiler's child and take over what it attached; raises ProbesUnavailable."""
    ours, theirs = handover.channel()
    command = [sys.executable, "-m", "trainprobe.bpf.compile", str(theirs.fileno())] + (["--auto"] if auto else [])
    with ours:
        with theirs:
            child = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",  # python -m looks for modules in the working directory first
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        ours.settimeout(START_LIMIT_S)
        try:
            return Loaded(*handover.receive(ours))
        except (handover.ChildGone, TimeoutError, ConnectionResetError) as error:
            child.kill()
            said = _last_words(child)
            reason = f"the probes' compiler died with status {child.wait()}: {said}".rstrip(": ")
            raise ProbesUnavailable(reason, "try again; see dmesg") from error
        except ProbesUnavailable as error:
            said = _last_words(child)
            raise ProbesUnavailable(f"{error.reason}\n{said}".strip(), error.remedy) from error
        finally:
            if child.stdout:
                child.stdout.close()
            child.wait()


def _last_words(child: subprocess.Popen[bytes]) -> str:
    return child.stdout.read(1 << 16).decode(errors="replace")[-4000:] if child.stdout else ""
