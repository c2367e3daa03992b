# SPDX-License-Identifier: Apache-2.0
"""Bytes of the ring and of maps -> events of the model. Pure; every size is checked first.

Paths come as the process passed them; ``NamedFile`` carries what user space needs to make them absolute.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from ctypes import Array, Structure, c_char, sizeof
from functools import lru_cache
from itertools import takewhile
from operator import itemgetter
from typing import Any

from trainprobe.bpf import abi
from trainprobe.bpf.abi import HELD_STEPS, UNTOLD, KernelFileKind, ProcessKind, RingMessage, Why
from trainprobe.model.cells import CELLS, Leaf, Level, Region, RowKind, ThreadState, cell
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import (
    NO_GPU_MEMORY_CALLS,
    CallFailed,
    FileEvent,
    FileEventKind,
    FileLooked,
    GpuMemoryCalls,
    HostStoodStill,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    StepFile,
    ThreadSample,
)


class Malformed(Exception):
    """A message of the wrong size or with a number that nobody defined."""


@dataclass(frozen=True)
class Candidate:
    """A process that nobody watches did something that trainings do."""

    at_ns: int
    pid: int
    why: str  # exec | mark


@dataclass(frozen=True)
class NamedFile:
    """A file event with its paths still raw."""

    event: FileEvent  # path and new_path empty
    fd: int
    directory: int
    new_directory: int
    path: bytes
    new_path: bytes
    parts: tuple[bytes, ...]  # names up to the root of the mount, innermost first, where there is no path
    deeper: bool = False  # there are more than these


@dataclass(frozen=True)
class RawFailure:
    """A failed call whose number and path are still raw."""

    event: CallFailed  # call and path empty
    number: int
    fd: int
    path: bytes


@dataclass(frozen=True)
class RawLook:
    """A file that was asked for, its path still raw."""

    event: FileLooked  # path empty
    directory: int  # that the path begins at: a descriptor, AT_FDCWD
    path: bytes


@dataclass(frozen=True)
class Site:
    """A place in a process that calls of CUDA return to, seen for the first time."""

    pid: int
    address: int


Decoded = MarkRow | FileEvent | NamedFile | ProcessEvent | Candidate | HostStoodStill | RawFailure | RawLook | Site

_FILE_KINDS = {kind: FileEventKind[kind.name] for kind in KernelFileKind}
_PROCESS_KINDS = {kind: ProcessEventKind[kind.name] for kind in ProcessKind}
_BY_USER = frozenset((0, -1, -6))  # SI_USER, SI_QUEUE, SI_TKILL
_TMPFS = 0x01021994


def text(raw: bytes) -> str:
    """Names are bytes to the kernel; what is no UTF-8 survives as surrogates."""
    return raw.split(b"\0", 1)[0].decode(errors="surrogateescape")


def message(raw: bytes) -> Decoded:
    """One message of the ring; raises Malformed."""
    if len(raw) < 8:
        raise Malformed(f"{len(raw)} bytes")
    kind = int.from_bytes(raw[:4], "little")
    if kind == RingMessage.ROW:
        return _row(raw)
    try:
        decode = _DECODERS[kind]
    except KeyError:
        raise Malformed(f"message {kind}") from None
    shape, make = decode
    if len(raw) < sizeof(shape):
        raise Malformed(f"message {kind} of {len(raw)} bytes")
    try:
        told: Decoded = make(shape.from_buffer_copy(raw))
        return told
    except (ValueError, KeyError) as error:
        raise Malformed(f"message {kind}: {error}") from error


def _format(shape: type[Structure]) -> str:
    """The structure in the words of the struct module; it has no padding (layout.h)."""
    return "".join(_code(kind) for _, kind in shape._fields_)  # type: ignore[misc]


def _code(kind: Any) -> str:
    if issubclass(kind, Structure):
        return _format(kind)
    if issubclass(kind, Array):
        return f"{kind._length_}s" if kind._type_ is c_char else _code(kind._type_) * kind._length_
    return str(kind._type_)


def _before_files(shape: type[Structure]) -> struct.Struct:
    kinds: dict[str, Any] = dict(shape._fields_)  # type: ignore[arg-type]
    return struct.Struct("@" + "".join(_code(kinds[name]) for name in takewhile("files".__ne__, kinds)))


# Rows are most of what the ring brings: struct takes a third of the time of ctypes.
_ROW_FIELDS = {name: _code(kind) for name, kind in abi.Row._fields_}  # type: ignore[misc]
_HEAD = _before_files(abi.Row)
_REST = struct.Struct(
    "@" + "".join(_ROW_FIELDS[name] for name in ("shared", "began", "lengths", "held", "swap_faults", "name"))
)
_FILE = struct.Struct("@" + _format(abi.StepFileRecord))
_FILES_AT, _CELLS_AT, _SHARED_AT = abi.Row.files.offset, abi.Row.acc.offset, abi.Row.shared.offset
_NO_FILES = bytes(_CELLS_AT - _FILES_AT)
_ROW_KINDS = {kind.value: kind for kind in RowKind}
_REGIONS = {region.value: region for region in Region}
_LEAVES = {leaf.value: leaf for leaf in Leaf}
_RUN_STATES = {state.value: state for state in ThreadState}
_LEVELS = {level.value: level for level in Level}
_LARGEST = (1 << 64) - 1
_mark_name = lru_cache(maxsize=64)(text)


def _row(raw: bytes) -> MarkRow:
    if len(raw) < sizeof(abi.Row):
        raise Malformed(f"a row of {len(raw)} bytes")
    (
        _, kind, at, opened, tid, tgid, steps, fetches, inline_fetches, backwards, faults, region,
        gpu_memory_ns, gpu_allocations, gpu_frees, collected_ns, ran_ns,
    ) = _HEAD.unpack_from(raw)  # fmt: skip
    if kind not in _ROW_KINDS or region not in _REGIONS:
        raise Malformed(f"a row of kind {kind} in region {region}")
    shared, began, *lengths, held, swap_faults, name = _REST.unpack_from(raw, _SHARED_AT)
    if held and (held > HELD_STEPS or sum(lengths[:held]) != at - began):
        raise Malformed(f"a row of {held} steps from {began} to {at}")
    numbers = memoryview(raw)[_CELLS_AT:_SHARED_AT].cast("Q")  # hardly one of ten is ever looked at
    files = _step_files(raw[_FILES_AT:_CELLS_AT])
    return MarkRow(
        _ROW_KINDS[kind], at, tgid, tid, _mark_name(name), _REGIONS[region], opened, steps, fetches, inline_fetches,
        backwards, faults, numbers[:CELLS], numbers[CELLS:], files,
        GpuMemoryCalls(gpu_memory_ns, gpu_allocations, gpu_frees) if gpu_memory_ns else NO_GPU_MEMORY_CALLS,
        shared, tuple(lengths[:held]), None if swap_faults == UNTOLD else swap_faults, collected_ns,
        ran_ns,
    )  # fmt: skip


def _step_files(records: bytes) -> tuple[StepFile, ...]:
    if records == _NO_FILES:  # so it is with most
        return ()
    return tuple(
        StepFile(dev, ino, io_ns, gap_ns, size, calls)
        for ino, io_ns, gap_ns, size, dev, calls in _FILE.iter_unpack(records)
        if io_ns or gap_ns or size
    )


def _file(m: abi.FileMessage) -> FileEvent:
    return file_event(_FILE_KINDS[KernelFileKind(m.kind)], m.at, m.key, m.use, m.tid)


def file_event(kind: FileEventKind, at_ns: int, key: abi.FileKey, use: abi.FileUse, tid: int) -> FileEvent:
    """A file's totals as an event, its path still empty."""
    return FileEvent(
        kind=kind,
        at_ns=at_ns,
        pid=key.tgid,
        tid=tid,
        dev=key.dev,
        ino=key.ino,
        path="",
        opened_ns=use.opened,
        bytes=use.bytes,
        calls=use.calls,
        write_ns=use.write_ns,
        sync_ns=use.sync_ns,
        meta_ns=use.meta_ns,
        gap_ns=use.gap_ns,
        errno=use.error,
        created=bool(use.created),
        append=bool(use.append),
    )


def _named(m: abi.NamedFileMessage) -> NamedFile:
    raw = bytes(memoryview(m).cast("B")[abi.NamedFileMessage.path.offset :])
    path, new_path = raw[: abi.PATH_SIZE], raw[abi.PATH_SIZE :]
    parts: tuple[bytes, ...] = ()
    if m.walked:
        places = range(0, abi.PARTS * abi.PART_SIZE, abi.PART_SIZE)
        walked = [raw[place : place + abi.PART_SIZE].split(b"\0", 1)[0] for place in places]
        parts = tuple(part for part in walked if part and part != b"/")
        path = new_path = b""
    return NamedFile(
        event=_file(m.file),
        fd=m.file.fd,
        directory=m.directory,
        new_directory=m.new_directory,
        path=path.split(b"\0", 1)[0],
        new_path=new_path.split(b"\0", 1)[0],
        parts=parts,
        deeper=m.walked > 1,
    )


def _process(m: abi.ProcessMessage) -> ProcessEvent:
    kind = _PROCESS_KINDS[ProcessKind(m.kind)]
    code: int | None = None
    signal: int | None = None
    if kind is ProcessEventKind.EXIT:
        status = m.code & 0xFFFF
        signal = status & 0x7F or None
        code = status >> 8 if signal is None else None
    elif kind is ProcessEventKind.SIGNAL:
        signal = m.signal
    sent = kind is ProcessEventKind.SIGNAL
    oom = kind is ProcessEventKind.OOM
    return ProcessEvent(
        kind=kind,
        at_ns=m.at,
        pid=m.tgid,
        ppid=m.parent,
        comm=text(m.comm),
        code=code,
        signal=signal,
        sender_pid=m.sender if sent else None,
        sender_comm=text(m.sender_comm),
        by_user=sent and m.code in _BY_USER,
        anonymous_bytes=m.anonymous << 10 if oom and m.anonymous else None,
        shared_bytes=m.shared << 10 if oom and m.anonymous else None,
    )


def _candidate(m: abi.CandidateMessage) -> Candidate:
    return Candidate(m.at, m.tgid, "exec" if Why(m.why) is Why.EXEC else "mark")


def _standstill(m: abi.StandstillMessage) -> HostStoodStill:
    return HostStoodStill(m.at, m.ns, m.cpu)


def _failure(m: abi.FailureMessage) -> RawFailure:
    event = CallFailed(
        at_ns=m.at,
        pid=m.tgid,
        tid=m.tid,
        call="",
        errno=m.error,
        count=m.count,
        dev=m.dev,
        ino=m.ino,
        tmpfs=m.magic == _TMPFS,
        comm=text(m.comm),
    )
    return RawFailure(event, m.number, m.fd, m.path.split(b"\0", 1)[0])


def _file_look(m: abi.FailureMessage) -> RawLook:
    return RawLook(FileLooked(m.at, m.tgid, m.tid, "", m.error), m.fd, m.path.split(b"\0", 1)[0])


def _site(m: abi.SiteMessage) -> Site:
    return Site(m.tgid, m.address)


_DECODERS: dict[int, tuple[Any, Any]] = {
    RingMessage.FILE: (abi.FileMessage, _file),
    RingMessage.NAMED_FILE: (abi.NamedFileMessage, _named),
    RingMessage.PROCESS: (abi.ProcessMessage, _process),
    RingMessage.CANDIDATE: (abi.CandidateMessage, _candidate),
    RingMessage.STANDSTILL: (abi.StandstillMessage, _standstill),
    RingMessage.FAILURE: (abi.FailureMessage, _failure),
    RingMessage.LOOK: (abi.FailureMessage, _file_look),
    RingMessage.SITE: (abi.SiteMessage, _site),
}


def _places(shape: type[Structure]) -> dict[str, slice]:
    """Where each field's values lie among those that the struct module unpacks."""
    places, start = {}, 0
    for name, kind in shape._fields_:  # type: ignore[misc]
        end = start + len(struct.unpack(f"@{_code(kind)}", bytes(sizeof(kind))))
        places[name] = slice(start, end)
        start = end
    return places


# With many processes most of what a look costs is unpacking ledgers; their cells are left as they lie, as a row's.
_LEDGER = _before_files(abi.Ledger)
_IN_LEDGER = _places(abi.Ledger)
_SEEN_IN_LEDGER = itemgetter(*(
    _IN_LEDGER[name].start
    for name in (
        "tgid", "tid", "region", "leaf", "run", "at", "since", "step_at", "blocked_call", "blocked_fd", "dev", "ino",
        "fetches", "backwards", "major_faults",
    )
))  # fmt: skip


def thread_sample(ledger: abi.Ledger, level: int, now_ns: int, calls: Mapping[int, str]) -> ThreadSample:
    """A ledger as read from the map, the open interval included; the path is still empty. ``calls``: number -> name."""
    pid, tid, in_region, in_leaf, state, at, since, step_at, call, fd, dev, ino, fetches, backwards, faults = (
        _SEEN_IN_LEDGER(_LEDGER.unpack_from(ledger))
    )
    try:
        region, leaf, run = _REGIONS[in_region], _LEAVES[in_leaf], _RUN_STATES[state]
        followed = _LEVELS[level & ~abi.QUIET]
    except KeyError as error:
        raise Malformed(f"a ledger with {error}") from error
    cells = memoryview(bytearray(ledger.acc)).cast("Q")
    place = cell(region, leaf)
    if now_ns > at and place < CELLS:
        cells[place] = cells[place] + now_ns - at & _LARGEST
    blocked = run is ThreadState.BLOCKED
    return ThreadSample(
        pid=pid,
        tid=tid,
        level=followed,
        run=run,
        region=region,
        leaf=leaf,
        since_ns=since,
        step_ns=step_at,
        syscall=call if blocked else -1,
        fd=fd if blocked else -1,
        dev=dev if ino else 0,
        ino=ino,
        path="",
        cells=cells.toreadonly(),
        fetches=fetches,
        backwards=backwards,
        files=_step_files(bytes(ledger.files)),
        call=calls.get(call, "") if blocked else "",
        major_faults=faults,
    )
