# SPDX-License-Identifier: Apache-2.0
"""Which symbols are probed, and where in a function."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import pace
from tests.unit.collect.fake_proc import FakeProc
from trainprobe.bpf.attach import executed_files, library_readers, mark_table, marks, symbols, useless_files, user_quota
from trainprobe.bpf.attach.symbols import Symbol
from trainprobe.bpf.attach.user_quota import UserQuota
from trainprobe.collect.owners import Owners
from trainprobe.collect.procfs import Proc


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("488b3f4883c710e954ba34fb0f1f4000", 7),  # mov (%rdi),%rdi; add $16,%rdi; jmp
        ("41554989d5", 0),  # push
        ("488b3f4883c710c3", 0),
        ("", 0),
    ],
)
def test_a_probe_sits_where_the_kernel_need_not_single_step(code: str, place: int) -> None:
    assert marks.cheap_place(bytes.fromhex(code)) == place


def test_a_prefix_that_ends_with_nul_is_the_whole_name() -> None:
    table = {"_ZN1aE": [Symbol("_ZN1aE", 1), Symbol("_ZN1aES2_", 2)]}
    assert [s.offset for s in marks._matching(table, b"_ZN1aE\0")] == [1]
    assert [s.offset for s in marks._matching(table, b"_ZN1aE")] == [1, 2]
    assert marks._matching(table, b"_ZN1b") == []


def place_of(path: Path) -> tuple[int, int]:
    """Where this very process maps a file."""
    return next((p.start, p.end) for p in marks.executable_maps(os.getpid(), Proc()) if p.path == bytes(path))


def seen_through(attaching: marks.Marks, path: Path) -> marks.MarksAttached:
    """Asks until there is an answer."""
    until = time.monotonic() + 60
    while (attached := attaching.attach(os.getpid(), str(path), *place_of(path))) is None:
        assert time.monotonic() < until
        time.sleep(0.005)
    return attached


@contextmanager
def mapped(path: Path, content: bytes) -> Iterator[Path]:
    path.write_bytes(content)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC):
        yield path


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_library_whose_reading_hangs_holds_up_neither_us_nor_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, read = threading.Event(), symbols.find_apart

    def hang(path: str, prefixes: Sequence[bytes]) -> symbols.Found | symbols.Unreadable:
        if os.path.basename(os.path.realpath(path)).startswith("hung"):
            free.wait(60)
        return read(path, prefixes)

    monkeypatch.setattr(symbols, "find_apart", hang)
    attaching = marks.Marks({}, lambda program, path, offset, counter, pid, at_return: 0, Proc())
    with mapped(tmp_path / "hung.so", b"no ELF" * 1000) as hung, mapped(tmp_path / "other.so", b"none" * 900) as other:
        began = time.monotonic()
        assert [attaching.attach(os.getpid(), str(hung), *place_of(hung)) for _ in range(3)] == [None] * 3
        assert pace.within(time.monotonic() - began, 1)
        assert "not an ELF" in str(seen_through(attaching, other).reason)
        assert attaching.attach(os.getpid(), str(hung), *place_of(hung)) is None
        assert sum(thread.name == "library-reader" for thread in threading.enumerate()) == 1
        free.set()
        assert "not an ELF" in str(seen_through(attaching, hung).reason)
    attaching.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_one_library_under_two_names_gets_its_marks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    together = threading.Barrier(2)

    def find(path: str, prefixes: Sequence[bytes]) -> symbols.Found | symbols.Unreadable:
        asked.append(path)
        return symbols.Unreadable("seen")

    opened = marks.open_mapping

    def open_together(pid: int, start: int, end: int) -> int:
        if not asked:
            together.wait(10)
        return opened(pid, start, end)

    monkeypatch.setattr(symbols, "find_apart", find)
    monkeypatch.setattr(marks, "open_mapping", open_together)
    attaching = marks.Marks({}, lambda program, path, offset, counter, pid, at_return: 0, Proc())
    with mapped(tmp_path / "one.so", b"no ELF" * 1000) as one:
        os.link(one, tmp_path / "two.so")
        where = place_of(one)
        answers: list[marks.MarksAttached | None] = [None, None]
        until = time.monotonic() + 20
        while None in answers and time.monotonic() < until:
            for at, name in enumerate(("one.so", "two.so")):
                answers[at] = answers[at] or attaching.attach(os.getpid(), str(tmp_path / name), *where)
            time.sleep(0.002)
    assert [answer and answer.reason for answer in answers] == ["seen", "seen"]
    assert len(asked) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_file_that_is_no_library_is_read_once_and_counted_against_its_user(tmp_path: Path) -> None:
    class Told(UserQuota):
        def __init__(self) -> None:
            super().__init__()
            self.taken: list[tuple[int, bool]] = []

        def refusal(self, uid: int) -> str:
            return "enough" if self.taken else ""

        def took(self, uid: int, seconds: float, *, useful: bool) -> None:
            self.taken.append((uid, useful))

    told, seen = Told(), []
    attaching = marks.Marks({}, lambda program, path, offset, counter, pid, at_return: 0, Proc(), told)
    for name in ("libtorch_cpu.so", "libtorch_cpu-2.so"):
        with mapped(tmp_path / name, b"no ELF" * 1000) as path:
            seen += [seen_through(attaching, path) for _ in range(2)]
    assert told.taken == [(os.geteuid(), False)]
    assert seen[0] is seen[1]
    assert "not" in str(seen[0].reason)
    assert {attached.reason for attached in seen[2:]} == {"enough"}


class Attaching(marks.Marks):
    """Puts no probe anywhere: each mark's descriptor is one of an open file that tells whether it was closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[int] = []
        names = [mark.program for mark in (*mark_table.IN_CPU, *mark_table.IN_PYTHON, *mark_table.IN_INTERPRETER)]
        super().__init__(dict.fromkeys(names, 0), self._give, Proc(), UserQuota(owner=Owners().of_process))

        def find(path: str, prefixes: Sequence[bytes]) -> symbols.Found | symbols.Unreadable:
            return {prefix.decode(): [Symbol(prefix.decode(), 64)] for prefix in prefixes}

        monkeypatch.setattr(symbols, "find_apart", find)

    def _give(self, program: int, path: str, offset: int, counter: int, pid: int | None, *, at_return: bool) -> int:
        self.given.append(os.open("/dev/zero", os.O_RDONLY))
        return self.given[-1]

    def open(self) -> list[int]:
        """Numbers come again, for other files."""
        return sorted({one for one in self.given if os.path.realpath(f"/proc/self/fd/{one}") == "/dev/zero"})


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_the_marks_of_a_file_that_nobody_executes_any_more_are_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attaching = Attaching(monkeypatch)
    with mapped(tmp_path / "libtorch_cpu.so", b"stays" * 1000) as stays:
        assert seen_through(attaching, stays).found["record"]
        held = attaching.open()
        with mapped(tmp_path / "libtorch_cpu-2.so", b"goes" * 1000) as goes:
            assert seen_through(attaching, goes).found["record"]
            goes.rename(tmp_path / "another name")
            attaching.release_unused()
            assert len(attaching.open()) > len(held)
        attaching.release_unused()
        assert attaching.open() == held
        # A file with the same number gets its marks anew.
        with mapped(tmp_path / "libtorch_cpu-3.so", b"comes" * 1000) as comes:
            assert seen_through(attaching, comes).found["record"]
            assert len(attaching.open()) > len(held)
    attaching.close()
    assert attaching.open() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_containers_may_come_and_go_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_quota, "SHARED", 4)
    monkeypatch.setattr(marks, "RELEASE_SOONEST_SECONDS", 0.0)
    attaching = Attaching(monkeypatch)
    most = 0
    for number in range(12):
        with mapped(tmp_path / f"libtorch_cpu-{number}.so", b"%d" % number * 3000) as library:
            attached = seen_through(attaching, library)
            assert attached.found.get("record"), attached.reason
            most = max(most, len(attaching.open()))
    assert most <= 4 * (len(mark_table.IN_CPU) + 1) + len(mark_table.IN_INTERPRETER)
    attaching.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
@pytest.mark.parametrize(
    ("has", "ends", "told"),
    [
        (("usdt:python:gc__start", "usdt:python:gc__done", "gc_collect_main"), [(1, False), (2, False)], True),
        (("gc_collect_main",), [(1, False), (2, True)], True),
        ((), [], False),
    ],
)
def test_without_cpythons_probes_a_collection_is_told_by_the_collectors_symbol(
    has: tuple[str, ...],
    ends: list[tuple[int, bool]],
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This test's own interpreter is the one that gets the marks."""
    attaching, given = Attaching(monkeypatch), []
    attaching._programs = dict(attaching._programs) | {"on_collector": 1, "on_collector_end": 2}

    def find(path: str, prefixes: Sequence[bytes]) -> symbols.Found:
        names = [prefix.decode() for prefix in prefixes]
        return {name: [Symbol(name, 64)] if name in has or name.startswith("_ZN5torch") else [] for name in names}

    def give(program: int, path: str, offset: int, counter: int, pid: int | None, *, at_return: bool) -> int:
        if program:
            given.append((program, at_return))
        return attaching._give(program, path, offset, counter, pid, at_return=at_return)

    monkeypatch.setattr(symbols, "find_apart", find)
    attaching._attach = give
    with mapped(tmp_path / "libtorch_cpu.so", b"stays" * 1000) as library:
        assert seen_through(attaching, library).found["collector"] is told
    attaching.close()
    assert given == ends


@contextmanager
def other_process(path: Path, content: bytes, uid: int) -> Iterator[int]:
    """A process of another user that maps a file to execute it."""
    path.write_bytes(content)
    path.chmod(0o644)
    child = os.fork()
    if not child:
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC):
                os.setresuid(uid, uid, uid)
                time.sleep(60)
        finally:
            os._exit(1)
    try:
        until = time.monotonic() + 10
        while os.stat(f"/proc/{child}").st_uid != uid:
            assert time.monotonic() < until
            time.sleep(0.002)
        yield child
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def answer_about(attaching: marks.Marks, pid: int, path: Path) -> marks.MarksAttached:
    place = next((p.start, p.end) for p in marks.executable_maps(pid, Proc()) if p.path == bytes(path))
    until = time.monotonic() + 60
    while (attached := attaching.attach(pid, str(path), *place)) is None:
        assert time.monotonic() < until
        time.sleep(0.002)
    return attached


ATTACKER, VICTIM = 2_100_001, 2_100_002


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    return tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_useless_files_of_one_user_leave_the_others_their_places(
    open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_quota, "PLACES", 3)
    monkeypatch.setattr(user_quota, "SHARED", 6)
    attaching = Attaching(monkeypatch)
    find = symbols.find_apart
    monkeypatch.setattr(
        symbols, "find_apart", lambda path, wanted: symbols.Unreadable("bogus") if b"bogus" in Path(path).read_bytes()
        else find(path, wanted),
    )  # fmt: skip
    for number in range(8):
        with other_process(open_path / f"libtorch_cpu-{number}.so", b"bogus%d" % number * 900, ATTACKER) as pid:
            assert answer_about(attaching, pid, open_path / f"libtorch_cpu-{number}.so").reason == "bogus"
    assert len(attaching._useless) == 8
    assert not attaching._done
    with other_process(open_path / "libtorch_cpu.so", b"torch" * 900, VICTIM) as pid:
        assert answer_about(attaching, pid, open_path / "libtorch_cpu.so").found["record"]
    attaching.close()


def test_of_each_user_so_many_useless_files_are_remembered_and_not_for_ever(tmp_path: Path) -> None:
    now = [0.0]
    kept = useless_files.UselessFiles[str](lambda: now[0])
    files = [tmp_path / str(number) for number in range(useless_files.KEPT + 1)]
    for file in files:
        file.touch()
        kept.put(1000, file.stat(), file.name)
    assert kept.get(1000, files[0].stat()) is None
    assert kept.get(1000, files[-1].stat()) == files[-1].name
    assert kept.get(1001, files[-1].stat()) is None
    now[0] = useless_files.KEPT_SECONDS
    assert kept.get(1000, files[-1].stat()) is None
    kept.put(1001, files[0].stat(), "")
    assert len(kept) == 1, "a user who is gone takes no memory"


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_file_in_which_nothing_was_found_is_read_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attaching = Attaching(monkeypatch)
    found = symbols.find_apart
    monkeypatch.setattr(symbols, "find_apart", lambda path, wanted: symbols.Unreadable("half of it is there"))
    with mapped(tmp_path / "libtorch_cpu.so", b"torch" * 1000) as library:
        assert seen_through(attaching, library).found == dict.fromkeys(seen_through(attaching, library).found, False)
        monkeypatch.setattr(symbols, "find_apart", found)
        assert "half" in str(seen_through(attaching, library).reason), "it is the same file"
        os.utime(library, ns=(0, 0))
        assert seen_through(attaching, library).found["record"]
    attaching.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_an_attach_that_hangs_holds_up_no_library_of_that_name_of_another_user(
    open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel's does while a process that maps the file holds the lock of its memory map."""
    monkeypatch.setattr(library_readers, "HUNG_SECONDS", 0.2)
    monkeypatch.setattr(library_readers, "HUNG_OF_ONE", 1)
    attaching, free = Attaching(monkeypatch), threading.Event()
    give = attaching._give

    def hang(program: int, path: str, offset: int, counter: int, pid: int | None, *, at_return: bool) -> int:
        if b"evil" in Path(path).read_bytes():
            free.wait(30)
        return give(program, path, offset, counter, pid, at_return=at_return)

    attaching._attach = hang
    name, other = open_path / "libtorch_cpu.so", open_path / "libtorch_cpu-2.so"
    with other_process(name, b"evil" * 2000, ATTACKER) as evil, other_process(other, b"torch" * 900, VICTIM) as good:
        place = next((p.start, p.end) for p in marks.executable_maps(evil, Proc()) if p.path == bytes(name))
        began = time.monotonic()
        assert attaching.attach(evil, "/one/name", *place) is None
        assert pace.within(time.monotonic() - began, 0.2)
        place = next((p.start, p.end) for p in marks.executable_maps(good, Proc()) if p.path == bytes(other))
        until = time.monotonic() + 10
        while (attached := attaching.attach(good, "/one/name", *place)) is None:
            assert time.monotonic() < until
            time.sleep(0.002)
        assert attached.found["record"]
        time.sleep(0.3)
        assert attaching.hung() == [(ATTACKER, evil)]
        refused = attaching.attach(evil, "/another/name", 1, 2)
        assert refused is not None
        assert refused.refused
        free.set()
        while attaching.hung():
            time.sleep(0.01)
    attaching.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_the_ids_that_a_user_was_lent_have_one_part_of_the_places(
    open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = Owners()
    monkeypatch.setattr(owners, "of", lambda uid: ATTACKER if 3_000_000 <= uid < 3_065_536 else uid)
    monkeypatch.setattr(user_quota, "PLACES", 2)
    attaching = Attaching(monkeypatch)
    attaching._quota = UserQuota(owner=owners.of_process)
    answers = []
    for number in range(4):
        path = open_path / f"libtorch_cpu-{number}.so"
        with other_process(path, b"torch%d" % number * 900, 3_000_000 + number) as pid:
            answers.append(answer_about(attaching, pid, path).refused)
            monkeypatch.setattr(attaching, "release_unused", lambda at_most_every: None)
    assert answers == [False, False, True, True]
    with other_process(open_path / "libtorch_cpu.so", b"theirs" * 900, VICTIM) as pid:
        assert not answer_about(attaching, pid, open_path / "libtorch_cpu.so").refused
    attaching.close()


def test_a_process_whose_maps_are_not_read_takes_no_marks_away_and_holds_nobody_up(tmp_path: Path) -> None:
    """A FIFO stands in for a file whose readers wait for the lock of a memory map."""
    fake = FakeProc(tmp_path)
    fake.add(12)
    (tmp_path / "12/maps").unlink()
    os.mkfifo(tmp_path / "12/maps")
    began = time.monotonic()
    proc = fake.proc.apart()
    proc.maps = lambda pid: proc.ask(pid, "memory", "maps")  # type: ignore[method-assign]
    assert executed_files.files_executed({(1, 2)}, proc) is None
    assert proc.hanging() == (12,)
    assert pace.within(time.monotonic() - began, 2)


def test_maps_that_cannot_be_read_are_told_from_a_process_that_is_gone_and_from_one_that_is_closed(
    tmp_path: Path,
) -> None:
    fake = FakeProc(tmp_path)
    for pid in (12, 13):
        fake.add(pid)
        (tmp_path / f"{pid}/maps").unlink()
    os.mkfifo(tmp_path / "12/maps")
    proc = fake.proc.apart()
    read = proc.maps
    proc.maps = lambda pid: proc.ask(pid, "memory", "maps") if pid == 12 else read(pid)  # type: ignore[method-assign]
    with pytest.raises(BlockingIOError):
        list(marks.executable_maps(12, proc))
    with pytest.raises(PermissionError):
        list(marks.executable_maps(13, fake.proc))
    with pytest.raises(ProcessLookupError):
        list(marks.executable_maps(14, fake.proc))


def test_a_process_that_is_gone_is_a_reason() -> None:
    user_quota = UserQuota(owner=Owners().of_process)
    attaching = marks.Marks({}, lambda program, path, offset, counter, pid, at_return: 0, Proc(), user_quota)
    attached = attaching.attach(1 << 30, "/x/libtorch_cpu.so", 1, 2)
    assert attached is not None
    assert "cannot be opened" in str(attached.reason)
    assert attached.found == {}


class Failing:
    """Opens mappings, but for the calls of these numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *numbers: int, error: int = errno.ENOENT) -> None:
        self.calls, self.numbers, self.error = 0, numbers, error
        self._open = marks.open_mapping
        monkeypatch.setattr(marks, "open_mapping", self)

    def __call__(self, pid: int, start: int, end: int) -> int:
        self.calls += 1
        if self.calls in self.numbers:
            raise OSError(self.error, os.strerror(self.error))
        return self._open(pid, start, end)


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
@pytest.mark.parametrize("error", [errno.ENOENT, errno.ESRCH, errno.EAGAIN])
def test_a_mapping_that_cannot_be_opened_for_a_moment_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Its loader was still splitting it."""
    attaching = Attaching(monkeypatch)
    Failing(monkeypatch, 1, error=error)
    with mapped(tmp_path / "libtorch_cpu.so", b"torch" * 1000) as library:
        with pytest.raises(marks.PASSING):
            seen_through(attaching, library)
        assert seen_through(attaching, library).found["record"]
    attaching.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_mapping_that_may_not_be_opened_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attaching = Attaching(monkeypatch)
    Failing(monkeypatch, 1, error=errno.EACCES)
    with mapped(tmp_path / "libtorch_cpu.so", b"torch" * 1000) as library:
        assert "Permission denied" in str(seen_through(attaching, library).reason)


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_process_that_ends_while_its_library_gets_marks_takes_none_from_those_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libtorch_cpu has its marks, libtorch_python beside it cannot be opened: half of them would stay for ever."""
    attaching = Attaching(monkeypatch)
    failing = Failing(monkeypatch, 2)
    with (
        mapped(tmp_path / "libtorch_python.so", b"python" * 1000),
        mapped(tmp_path / "libtorch_cpu.so", b"torch" * 1000) as library,
    ):
        with pytest.raises(FileNotFoundError):
            seen_through(attaching, library)
        assert failing.calls == 2
        assert attaching.given != []
        assert attaching.open() == []
        attached = seen_through(attaching, library)
        assert all(attached.found[mark.name] for mark in (*mark_table.IN_CPU, mark_table.IN_PYTHON[0]))
        given = len(attaching.given)
        assert seen_through(attaching, library) is attached
        assert len(attaching.given) == given
    attaching.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_a_host_that_starts_no_child_at_present_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*command: object, **how: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    attaching = marks.Marks({}, lambda program, path, offset, counter, pid, at_return: 0, Proc())
    with mapped(tmp_path / "libtorch_cpu.so", b"no ELF" * 1000) as library:
        with monkeypatch.context() as patched, pytest.raises(BlockingIOError):
            patched.setattr(subprocess, "run", refuse)
            seen_through(attaching, library)
        assert "not an ELF" in str(seen_through(attaching, library).reason)
