# SPDX-License-Identifier: Apache-2.0
"""Bytes become events, or Malformed; nothing else."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.bpf import abi
from trainprobe.bpf.read import decode
from trainprobe.bpf.read.decode import Candidate, Malformed, NamedFile, RawFailure, RawLook
from trainprobe.model.cells import CELLS, LEAVES, Leaf, Level, Region, RowKind, ThreadState, cell
from trainprobe.model.event import (
    CallFailed,
    FileEvent,
    FileEventKind,
    FileLooked,
    HostStoodStill,
    MarkRow,
    ProcessEvent,
    ProcessEventKind,
    StepFile,
)

LEDGER = ctypes.sizeof(abi.Ledger)


def row(**members: object) -> abi.Row:
    return abi.Row(message=abi.RingMessage.ROW, **members)


def test_a_row() -> None:
    raw = row(
        kind=RowKind.OPTIMIZER,
        at=100,
        opened=10,
        tid=7,
        tgid=6,
        steps=3,
        region=Region.OPTIMIZER,
        name=b"Optimizer.step#Adam.step",
    )
    raw.acc[cell(Region.FETCH, Leaf.POLL)] = 55
    raw.pool[Leaf.SLEEP] = 9
    raw.files[0] = abi.StepFileRecord(ino=4, dev=5, io_ns=6, gap_ns=7, bytes=8)
    told = decode.message(bytes(raw))
    assert isinstance(told, MarkRow)
    assert (told.kind, told.at_ns, told.pid, told.tid, told.steps, told.name) == (
        RowKind.OPTIMIZER,
        100,
        6,
        7,
        3,
        "Optimizer.step#Adam.step",
    )
    assert told.region is Region.OPTIMIZER
    assert (len(told.cells), told.cells[cell(Region.FETCH, Leaf.POLL)]) == (CELLS, 55)
    assert (len(told.pool), told.pool[Leaf.SLEEP]) == (LEAVES, 9)
    assert told.files == (StepFile(5, 4, 6, 7, 8),)
    assert told.lengths == ()


def test_a_row_of_several_steps() -> None:
    raw = row(at=100, began=40, held=2)
    raw.lengths[:3] = [20, 40, 99]
    told = decode.message(bytes(raw))
    assert isinstance(told, MarkRow)
    assert told.lengths == (20, 40)


def named(kind: abi.KernelFileKind, **members: object) -> abi.NamedFileMessage:
    file = abi.FileMessage(message=abi.RingMessage.NAMED_FILE, kind=kind, at=5, key=abi.FileKey(1, 2, 3), tid=4, fd=9)
    return abi.NamedFileMessage(file=file, **members)


def test_paths_are_bytes_to_the_first_nul() -> None:
    told = decode.message(
        bytes(named(abi.KernelFileKind.RENAMED, path=b"old\xff", new_path=b"new", directory=-100, new_directory=3))
    )
    assert isinstance(told, NamedFile)
    assert (told.path, told.new_path, told.directory, told.new_directory, told.fd) == (b"old\xff", b"new", -100, 3, 9)
    assert told.event.kind is FileEventKind.RENAMED


def test_a_path_into_folders_that_are_named_after_settings_keeps_its_suffix() -> None:
    """What a sweep of Hydra's makes of its overrides."""
    folder = b"/data/multirun/" + b",".join(b"model.layer_%d.dropout=0.%d" % (at, at) for at in range(12))
    tmp, path = folder + b"/checkpoints/.last.pth.tmp", folder + b"/checkpoints/last.pth"
    assert 255 < len(path) < len(tmp) < abi.PATH_SIZE
    told = decode.message(bytes(named(abi.KernelFileKind.RENAMED, path=tmp, new_path=path)))
    assert isinstance(told, NamedFile)
    assert (told.path, told.new_path) == (tmp, path)


def test_walked_names_lie_in_the_place_of_the_path() -> None:
    message = named(abi.KernelFileKind.OPENED, walked=2)
    names = [b"file", b"b", b"a", b"four", b"five"]
    raw = bytearray(message)
    for index, name in enumerate(names):
        at = abi.NamedFileMessage.path.offset + index * abi.PART_SIZE
        raw[at : at + len(name)] = name
    told = decode.message(bytes(raw))
    assert isinstance(told, NamedFile)
    assert told.parts == tuple(names)
    assert told.deeper
    assert told.path == b""


def test_totals_of_a_file() -> None:
    use = abi.FileUse(opened=1, bytes=2, calls=3, write_ns=4, sync_ns=5, meta_ns=6, gap_ns=7, error=28, created=1)
    raw = abi.FileMessage(
        message=abi.RingMessage.FILE, kind=abi.KernelFileKind.CLOSED, at=9, key=abi.FileKey(1, 2, 3), tid=8, use=use
    )
    told = decode.message(bytes(raw))
    assert isinstance(told, FileEvent)
    assert (told.kind, told.at_ns, told.pid, told.tid, told.dev, told.ino) == (FileEventKind.CLOSED, 9, 1, 8, 2, 3)
    assert (told.opened_ns, told.bytes, told.calls) == (1, 2, 3)
    assert (told.write_ns, told.sync_ns, told.meta_ns, told.gap_ns) == (4, 5, 6, 7)
    assert (told.errno, told.created, told.append) == (28, True, False)


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [(0, 0, None), (7 << 8, 7, None), (9, None, 9), (11 | 0x80, None, 11), (255 << 8, 255, None)],
)
def test_a_wait_status_is_a_code_or_a_signal(status: int, code: int | None, signal: int | None) -> None:
    raw = abi.ProcessMessage(
        message=abi.RingMessage.PROCESS, kind=abi.ProcessKind.EXIT, at=1, tgid=2, parent=3, code=status, comm=b"python"
    )
    assert decode.message(bytes(raw)) == ProcessEvent(
        ProcessEventKind.EXIT, 1, 2, ppid=3, comm="python", code=code, signal=signal
    )


@pytest.mark.parametrize(
    ("si_code", "by_user"), [(0, True), (-6, True), (-1, True), (0x80, False), (1, False), (2, False)]
)
def test_a_signal_says_whether_a_process_sent_it(si_code: int, by_user: bool) -> None:
    raw = abi.ProcessMessage(
        message=abi.RingMessage.PROCESS, kind=abi.ProcessKind.SIGNAL, at=1, tgid=2, code=si_code, signal=9, sender=5
    )
    told = decode.message(bytes(raw))
    assert isinstance(told, ProcessEvent)
    assert (told.signal, told.sender_pid, told.by_user, told.code) == (9, 5, by_user, None)


def test_a_standstill() -> None:
    raw = abi.StandstillMessage(abi.RingMessage.STANDSTILL, 0, 9, 4)
    assert decode.message(bytes(raw)) == HostStoodStill(9, 4)


def test_a_candidate() -> None:
    assert decode.message(bytes(abi.CandidateMessage(abi.RingMessage.CANDIDATE, abi.Why.MARK, 3, 4, 0))) == Candidate(
        3, 4, "mark"
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\1",
        bytes(8),
        b"\xff" * 8,
        bytes(row())[:-1],
        bytes(row(kind=99)),
        bytes(row(region=77)),
        bytes(row(held=33)),
        bytes(row(held=2, at=5)),
    ],
)
def test_what_is_not_a_message_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode.message(raw)


@given(st.binary(max_size=2000), st.integers(0, 7))
def test_any_bytes_are_an_event_or_malformed(noise: bytes, kind: int) -> None:
    try:
        told = decode.message(kind.to_bytes(4, "little") + noise)
    except Malformed:
        return
    assert hash(told) is not None


def test_an_open_interval_belongs_to_the_present_leaf() -> None:
    ledger = abi.Ledger(
        at=100, opened=10, since=50, tid=2, tgid=1, run=ThreadState.BLOCKED, leaf=Leaf.POLL, region=Region.FETCH
    )
    ledger.blocked_call, ledger.blocked_fd, ledger.fetches = 7, 4, 11
    ledger.acc[cell(Region.FETCH, Leaf.POLL)] = 50
    sample = decode.thread_sample(ledger, Level.COARSE | abi.QUIET, 130, {7: "poll"})
    assert sample.cells[cell(Region.FETCH, Leaf.POLL)] == 80
    assert (sample.level, sample.syscall, sample.fd, sample.fetches) == (Level.COARSE, 7, 4, 11)
    assert sample.call == "poll"


def test_a_thread_on_the_cpu_is_in_no_call() -> None:
    sample = decode.thread_sample(
        abi.Ledger(run=ThreadState.ON, blocked_call=7, blocked_fd=4), Level.FULL, 0, {7: "poll"}
    )
    assert (sample.syscall, sample.call, sample.fd, sample.ino) == (-1, "", -1, 0)


@given(st.binary(min_size=LEDGER, max_size=LEDGER), st.integers(0, 255))
def test_any_ledger_is_a_sample_or_malformed(raw: bytes, level: int) -> None:
    try:
        decode.thread_sample(abi.Ledger.from_buffer_copy(raw), level, 1 << 62, {})
    except Malformed:
        pass


def test_a_level_that_nobody_defined_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode.thread_sample(abi.Ledger(), 0x7F, 0, {})


@given(st.binary(max_size=64))
def test_any_name_can_be_printed_back(raw: bytes) -> None:
    assert decode.text(raw).encode(errors="surrogateescape") == raw.split(b"\0")[0]


def test_a_call_that_failed() -> None:
    raw = abi.FailureMessage(
        message=abi.RingMessage.FAILURE, number=285, at=9, tgid=6, tid=7, error=28, fd=5, count=3, ino=11, dev=12,
        magic=0x01021994, comm=b"pt_data_worker", path=b"/dev/shm/torch_6",
    )  # fmt: skip
    told = decode.message(bytes(raw))
    event = CallFailed(9, 6, 7, "", 28, 3, 12, 11, True, "", "pt_data_worker")
    assert told == RawFailure(event, 285, 5, b"/dev/shm/torch_6")


def test_a_file_that_was_asked_for() -> None:
    raw = abi.FailureMessage(
        message=abi.RingMessage.LOOK, number=262, at=9, tgid=6, tid=7, error=2, fd=-100, path=b"data.lock"
    )
    assert decode.message(bytes(raw)) == RawLook(FileLooked(9, 6, 7, "", 2), -100, b"data.lock")


def test_what_a_victim_held() -> None:
    raw = abi.ProcessMessage(message=abi.RingMessage.PROCESS, kind=abi.ProcessKind.OOM, at=1, tgid=2)
    told = decode.message(bytes(raw))
    assert isinstance(told, ProcessEvent)
    assert (told.anonymous_bytes, told.shared_bytes) == (None, None), "this kernel does not tell"
    raw.anonymous = 5
    told = decode.message(bytes(raw))
    assert isinstance(told, ProcessEvent)
    assert (told.anonymous_bytes, told.shared_bytes) == (5120, 0)
