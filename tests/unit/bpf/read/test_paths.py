# SPDX-License-Identifier: Apache-2.0
"""Names as the process sees them, from a /proc of our own making."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainprobe.bpf.read import paths as module
from trainprobe.bpf.read.decode import NamedFile, RawFailure
from trainprobe.bpf.read.paths import WALKS, Paths, mounts, shared_memory_device
from trainprobe.collect.procfs import Proc
from trainprobe.model.cells import Leaf, Level, Region, ThreadState
from trainprobe.model.event import CallFailed, FileEvent, FileEventKind, ThreadSample
from trainprobe.model.text import LONGEST_PATH

HERE = -100
OPENED, RENAMED, UNLINKED = FileEventKind.OPENED, FileEventKind.RENAMED, FileEventKind.UNLINKED


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "7" / "fd").mkdir(parents=True)
    (tmp_path / "7" / "cwd").symlink_to("/home/user/run")
    (tmp_path / "7" / "fd" / "3").symlink_to("/data/out")
    (tmp_path / "7" / "fd" / "5").symlink_to("/logs/train.log (deleted)")
    (tmp_path / "7" / "mountinfo").write_bytes(
        b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 22 0:30 / /mnt/big\\040disk rw shared:1 - nfs4 host:/x rw\n"
        b"41 22 0:25 / /dev/shm rw - tmpfs tmpfs rw\nnonsense\n42 22 x:y / /z rw - ext4 a b\n"
    )
    return tmp_path


def test_directories_of_processes_whose_end_was_lost_are_bounded(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PROCESSES", 4)
    paths = Paths(Proc(str(proc)))
    paths.note_directory(7)
    for pid in range(100, 110):
        (proc / str(pid)).mkdir()
        (proc / str(pid) / "cwd").symlink_to(f"/{pid}")
        paths.note_directory(pid)
        paths.note_directory(7)
    assert list(paths._directories.values()) == ["/107", "/108", "/109", "/home/user/run"]


def named(kind: FileEventKind, path: bytes = b"", new: bytes = b"", **more: object) -> NamedFile:
    event = FileEvent(
        kind,
        1,
        7,
        7,
        int(str(more.pop("dev", 1))),
        int(str(more.pop("ino", 2))),
        "",
        errno=int(str(more.pop("errno", 0))),
    )
    fields: dict[str, object] = {"fd": 5, "directory": HERE, "new_directory": HERE, "parts": ()}
    return NamedFile(event=event, path=path, new_path=new, **{**fields, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "directory", "absolute"),
    [
        (b"/abs/x.pt", HERE, "/abs/x.pt"),
        (b"x.pt", HERE, "/home/user/run/x.pt"),
        (b"../x.pt", HERE, "/home/user/x.pt"),
        (b"x.pt", 3, "/data/out/x.pt"),
        (b"x.pt", 4, "x.pt"),
        (b"\xff.pt", HERE, "/home/user/run/\udcff.pt"),
    ],
)
def test_a_path_becomes_absolute_where_that_can_be_known(
    proc: Path, path: bytes, directory: int, absolute: str
) -> None:
    assert Paths(Proc(str(proc))).resolve(named(OPENED, path, directory=directory)).path == absolute


def test_of_a_long_path_the_end_is_kept(proc: Path) -> None:
    deep = "/" + "/".join(["d" * 199] * 10)
    for link in ("cwd", "fd/3", "fd/5"):
        (proc / "7" / link).unlink()
        (proc / "7" / link).symlink_to(deep)
    paths = Paths(Proc(str(proc)))
    opened = paths.resolve(named(OPENED, b"last.ckpt"))
    assert (len(opened.path), opened.path[:2], opened.path[-10:]) == (LONGEST_PATH, "…d", "/last.ckpt")
    beside = (paths.resolve(named(RENAMED, b"last.ckpt", b"b.ckpt", new_directory=3)).new_path, paths.of(7, 1, 2))
    assert {len(path) for path in beside} == {LONGEST_PATH}
    assert len(paths.resolve(named(OPENED, parts=(b"d",), ino=3)).path) == LONGEST_PATH


def test_the_working_directory_is_remembered_beyond_the_process(proc: Path) -> None:
    paths = Paths(Proc(str(proc)))
    paths.note_directory(7)
    (proc / "7" / "cwd").unlink()
    assert paths.resolve(named(OPENED, b"x")).path == "/home/user/run/x"
    paths.forget(7)
    assert paths.resolve(named(OPENED, b"x")).path == "x"


def test_a_found_descriptor_is_named_by_its_link(proc: Path) -> None:
    assert Paths(Proc(str(proc))).resolve(named(OPENED, parts=(b"train.log", b"logs"))).path == "/logs/train.log"


def test_a_link_that_is_another_file_by_now_is_not_believed(proc: Path) -> None:
    """The descriptor was closed and reused: the names that BPF walked and the mount table tell."""
    told = Paths(Proc(str(proc))).resolve(named(OPENED, parts=(b"x.log", b"sub"), dev=30))
    assert told.path == "/mnt/big disk/sub/x.log"
    assert (
        Paths(Proc(str(proc))).resolve(named(OPENED, parts=(b"x", b"sub"), dev=30, deeper=True)).path
        == "/mnt/big disk/…/sub/x"
    )
    assert Paths(Proc(str(proc))).resolve(named(OPENED, parts=(b"x", b"sub"), dev=99)).path == "/sub/x"


def test_of_a_process_that_ended_our_own_mounts_tell(proc: Path) -> None:
    (proc / "7").rename(proc / "self")
    told = Paths(Proc(str(proc))).resolve(named(OPENED, parts=(b"x.log", b"sub"), dev=30))
    assert told.path == "/mnt/big disk/sub/x.log"


def test_a_rename_is_followed_and_names_its_file(proc: Path) -> None:
    paths = Paths(Proc(str(proc)))
    paths.resolve(named(OPENED, b"/a/.tmp1", ino=55))
    told = paths.resolve(named(RENAMED, b"/a/.tmp1", b"/a/last.ckpt", dev=0, ino=0))
    assert (told.dev, told.ino, told.new_path) == (1, 55, "/a/last.ckpt")
    assert paths.of(7, 1, 55) == "/a/last.ckpt"
    assert paths.resolve(named(UNLINKED, b"/a/last.ckpt", dev=0, ino=0)).ino == 55
    assert paths.resolve(named(UNLINKED, b"/a/last.ckpt", dev=0, ino=0)).ino == 0


def test_a_rename_that_failed_changes_nothing(proc: Path) -> None:
    paths = Paths(Proc(str(proc)))
    paths.resolve(named(OPENED, b"/a/x", ino=55))
    paths.resolve(named(RENAMED, b"/a/x", b"/b/x", errno=18))
    assert paths.of(7, 1, 55) == "/a/x"


def test_a_renamed_directory_takes_its_files_along(proc: Path) -> None:
    paths = Paths(Proc(str(proc)))
    paths.resolve(named(OPENED, b"/a/5.tmp/array/x", ino=55))
    paths.resolve(named(RENAMED, b"/a/5.tmp", b"/a/5", dev=0, ino=0))
    assert paths.of(7, 1, 55) == "/a/5/array/x"


def of(process: int, told: NamedFile) -> NamedFile:
    return replace(told, event=replace(told.event, pid=process))


def in_space(proc: Path, process: int, space: int) -> None:
    (proc / str(process) / "ns").mkdir(parents=True)
    (proc / str(process) / "ns" / "mnt").symlink_to(f"mnt:[{space}]")


def test_containers_do_not_rename_each_others_files(proc: Path) -> None:
    """Their file systems have the same paths: processes 7 and 9 are in one, 8 in another."""
    for process, space in ((7, 4026531840), (8, 4026532200), (9, 4026531840)):
        in_space(proc, process, space)
    paths = Paths(Proc(str(proc)))
    for process in (7, 8):
        for name in (b"/out/a.tmp", b"/out/b.tmp", b"/out/5.tmp/x"):
            paths.resolve(of(process, named(OPENED, name, dev=process, ino=name[5])))
    told = paths.resolve(of(7, named(RENAMED, b"/out/a.tmp", b"/out/a", dev=0, ino=0)))
    beside = paths.resolve(of(9, named(RENAMED, b"/out/b.tmp", b"/out/b", dev=0, ino=0)))
    paths.resolve(of(7, named(RENAMED, b"/out/5.tmp", b"/out/5", dev=0, ino=0)))
    assert [(one.dev, one.ino) for one in (told, beside)] == [(7, ord("a")), (7, ord("b"))]
    assert [paths.of(7, 7, ord(name)) for name in "ab5"] == ["/out/a", "/out/b", "/out/5/x"]
    assert [paths.of(8, 8, ord(name)) for name in "ab5"] == ["/out/a.tmp", "/out/b.tmp", "/out/5.tmp/x"]


def test_a_short_child_is_where_its_parent_is(proc: Path) -> None:
    in_space(proc, 7, 4026532200)
    paths = Paths(Proc(str(proc)))
    paths.resolve(named(OPENED, b"/out/a.tmp", ino=55))
    paths.note_fork(99, 7)  # it has ended by now
    paths.note_process(99)
    assert paths.resolve(of(99, named(RENAMED, b"/out/a.tmp", b"/out/a", dev=0, ino=0))).ino == 55


def test_a_process_that_enters_a_container_is_in_there_when_it_runs_another_program(proc: Path) -> None:
    in_space(proc, 8, 4026532200)
    paths = Paths(Proc(str(proc)))
    paths.note_fork(8, 7)
    paths.note_process(8)
    paths.resolve(of(8, named(OPENED, b"/out/a.tmp", ino=55)))
    assert paths.resolve(named(RENAMED, b"/out/a.tmp", b"/out/a", dev=0, ino=0)).ino == 0


def test_shared_memory_is_found_by_its_mount(proc: Path) -> None:
    table = (proc / "7" / "mountinfo").read_bytes()
    assert shared_memory_device(table) == 25
    over = b"43 22 0:%d / /dev/shm rw - %s x rw\n"
    assert shared_memory_device(table + over % (26, b"tmpfs") + over % (27, b"tmpfs")) == 27, "the others are hidden"
    assert shared_memory_device(table + over % (26, b"ext4")) is None


def test_files_whose_descriptors_are_gone_do_not_have_the_mounts_read_for_ever(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may have ten thousand mounts, and close what it was handed as often as it likes."""
    of = Proc(str(proc))
    read: list[str] = []
    monkeypatch.setattr(of, "read", lambda pid, name, limit: read.append(name) or b"")
    paths = Paths(of)
    for number in range(10 * WALKS):
        told = paths.resolve(named(OPENED, fd=9, parts=(b"last.ckpt", b"runs"), ino=number))
    assert len(read) == WALKS
    assert told.path == "…/last.ckpt"
    later = replace(named(OPENED, fd=9, parts=(b"last.ckpt", b"runs")).event, at_ns=60 * 10**9)
    assert paths.resolve(replace(named(OPENED, fd=9, parts=(b"last.ckpt", b"runs")), event=later)).path == (
        "/runs/last.ckpt"
    )


@given(st.binary(max_size=400))
def test_any_mountinfo_is_read(raw: bytes) -> None:
    mounts(raw)


@pytest.mark.parametrize(
    ("leaf", "ino", "fd", "path"),
    [
        (Leaf.FILE_READ, 4, 5, "/logs/train.log"),
        (Leaf.FILE_READ, 2, 5, "/home/user/run/x.pt"),
        (Leaf.FAULT, 9, -1, "/data/set.bin"),
        (Leaf.FAULT, 8, -1, ""),
        (Leaf.SOCKET, 4, 5, ""),
        (Leaf.FILE_READ, 0, 5, ""),
    ],
)
def test_the_file_that_a_thread_is_blocked_on(proc: Path, leaf: Leaf, ino: int, fd: int, path: str) -> None:
    """By the name that it was opened by, else by its descriptor, else by its mapping."""
    (proc / "7" / "maps").write_bytes(b"7f00-7f01 r--s 00000000 08:01 9    /data/set.bin\n")
    paths = Paths(Proc(str(proc)))
    paths.resolve(named(OPENED, b"x.pt"))
    sample = ThreadSample(
        7, 7, Level.FULL, ThreadState.BLOCKED, Region.STEP, leaf, 0, 0, 0, fd, 1, ino, "", ()
    )  # fmt: skip
    assert paths.of_thread(sample) == path


@pytest.mark.parametrize(
    ("dev", "path"),
    [(8 << 20 | 1, "/data/set.bin"), (0x103 << 20 | 0x12, "/other/a.bin"), (9 << 20, "/dev/shm/torch_1 (deleted)")],
)
def test_a_fault_is_on_the_file_of_its_device(proc: Path, dev: int, path: str) -> None:
    """The first files of each disk have the same numbers, and those of /dev/shm begin at 1."""
    (proc / "7" / "maps").write_bytes(
        b"7f00-7f01 rw-p 00000012 00:00 0    [heap]\n"
        b"7f01-7f02 rw-s 00000000 00:19 12    /dev/shm/torch_1 (deleted)\n"
        b"7f02-7f03 r--s 00000000 103:12 12    /other/a.bin\n"
        b"7f03-7f04 r--s 00000000 08:01 12    /data/set.bin\n"
        b"7f04-7f05 rw-p 00000000 00:00 0\n"
    )
    sample = ThreadSample(
        7, 7, Level.FULL, ThreadState.BLOCKED, Region.STEP, Leaf.FAULT, 0, 0, 0, -1, dev, 12, "", ()
    )  # fmt: skip
    assert Paths(Proc(str(proc))).of_thread(sample) == path


def test_the_file_that_a_call_failed_on(proc: Path) -> None:
    paths = Paths(Proc(str(proc)))
    failed = CallFailed(0, 7, 7, "", 28, dev=1, ino=4)
    assert paths.of_failure(RawFailure(failed, 1, 5, b"")) == "/logs/train.log"
    assert paths.of_failure(RawFailure(failed, 1, 5, b"/dev/shm/torch_1")) == "/dev/shm/torch_1"
    assert paths.of_failure(RawFailure(CallFailed(0, 7, 7, "", 24), 1, 5, b"")) == ""
