# SPDX-License-Identifier: Apache-2.0
"""The record of a program's start is taken once; what was known of a program goes with it."""

from __future__ import annotations

from ctypes import c_uint32
from types import SimpleNamespace
from typing import Any, cast

from trainprobe.bpf import abi
from trainprobe.bpf.probes import Probes
from trainprobe.bpf.read import decode
from trainprobe.bpf.read.starts import ROOM_NS, Starts
from trainprobe.model.event import StartSeen


class Records:
    """The kernel's table of starts, by process."""

    def __init__(self) -> None:
        self.kept: dict[int, abi.Start] = {}

    def get(self, key: c_uint32) -> abi.Start | None:
        return self.kept.get(key.value)

    def insert(self, key: c_uint32, record: abi.Start) -> bool:
        return len(self.kept) < abi.STARTS and self.kept.setdefault(key.value, record) is record

    def entries(self) -> list[tuple[c_uint32, abi.Start]]:
        return [(c_uint32(pid), record) for pid, record in self.kept.items()]

    def delete(self, key: c_uint32) -> bool:
        return self.kept.pop(key.value, None) is not None


def made(records: Records) -> Starts:
    loaded = SimpleNamespace(map=lambda *_: records)
    return Starts(cast(Any, loaded), cast(Any, SimpleNamespace(link=lambda *_: "/home")))


def began(start: StartSeen | None) -> int | None:
    return start.began_ns if start else None


def executed(pid: int) -> bytes:
    message, kind = abi.RingMessage.PROCESS.value, abi.ProcessKind.EXEC.value
    return bytes(abi.ProcessMessage(message=message, kind=kind, at=9, tgid=pid, comm=b"python"))


def test_a_record_is_taken_once() -> None:
    records = Records()
    starts = made(records)
    for began_ns in (1, 2):
        records.kept[7] = abi.Start(began=began_ns)
        assert began(starts.take_record(7, 5)) == (1 if began_ns == 1 else None)


def test_of_a_checkpoint_deep_in_a_sweeps_folders_the_end_of_its_path_is_known() -> None:
    records, room = Records(), abi.START_PATH_SIZE - 1
    deep = b"/data/multirun/" + b"model.dropout=0.1," * 30 + b"/checkpoints/last.ckpt"
    cut = b"/" + b"r" * (room - 11) + b"/last.ckpt"
    named = {
        deep[-room:]: "…/checkpoints/last.ckpt",
        cut: "…" + cut.decode(),
        b"n" * room: "…/" + "n" * room,
        b"x/last.ckpt": "/home/x/last.ckpt",
        b"/x/last.ckpt": "/x/last.ckpt",
    }
    record = abi.Start(began=1, files_used=len(named))
    for file, path in zip(record.files, named):
        file.path = path
    records.kept[7] = record
    start = made(records).take_record(7, 5)
    assert start
    assert [file.path for file in start.files] == list(named.values())


def test_a_full_table_has_room_again_for_programs_that_start() -> None:
    records = Records()
    starts = made(records)
    records.kept = {pid: abi.Start(began=10**6 - pid) for pid in range(1, abi.STARTS)}
    starts.make_room(ROOM_NS)
    assert len(records.kept) == abi.STARTS - 1, "there was room"
    records.kept[abi.STARTS] = abi.Start(began=10**6 - abi.STARTS)
    starts.make_room(2 * ROOM_NS - 1)
    assert len(records.kept) == abi.STARTS, "it is soon enough in a minute"
    starts.make_room(2 * ROOM_NS)
    assert list(records.kept) == list(range(1, abi.STARTS * 3 // 4 + 1)), "the oldest are gone"


def test_a_program_that_runs_another_one_leaves_neither_its_start_nor_its_places_of_cuda() -> None:
    records, places = Records(), [7, 8]
    starts = made(records)
    probes: Any = object.__new__(Probes)
    probes._starts, probes._cuda = starts, SimpleNamespace(forget=places.remove)
    probes._paths = SimpleNamespace(note_space=lambda pid: None)
    probes._watching = SimpleNamespace(proc=SimpleNamespace(command=lambda pid: ("python",)), executed=lambda *_: None)
    for pid in (7, 8):
        records.kept[pid] = abi.Start(began=1)
        assert began(starts.take_record(pid, 5)) == 1
        records.kept[pid] = abi.Start(began=2)
    probes._lived(decode.message(executed(7)))
    assert [began(starts.take_record(pid, 9)) for pid in (7, 8)] == [2, None]
    assert places == [8]
