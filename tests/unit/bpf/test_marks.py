# SPDX-License-Identifier: Apache-2.0
"""Which symbols are probed, and where in a function."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainprobe.bpf import executed, marks, symbols
from trainprobe.bpf.rations import Rations
from trainprobe.bpf.symbols import Symbol


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
    return next((p.start, p.end) for p in marks.executable_maps(os.getpid()) if p.path == bytes(path))


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
    attaching = marks.Marks({}, lambda program, path, offset, counter, pid: 0)
    with mapped(tmp_path / "hung.so", b"no ELF" * 1000) as hung, mapped(tmp_path / "other.so", b"none" * 900) as other:
        began = time.monotonic()
        assert [attaching.attach(os.getpid(), str(hung), *place_of(hung)) for _ in range(3)] == [None] * 3
        assert time.monotonic() - began < 1
        assert "not an ELF" in seen_through(attaching, other).reason
        assert attaching.attach(os.getpid(), str(hung), *place_of(hung)) is None
        assert sum(thread.name == "library-reader" for thread in threading.enumerate()) == 1
        free.set()
        assert "not an ELF" in seen_through(attaching, hung).reason
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
    attaching = marks.Marks({}, lambda program, path, offset, counter, pid: 0)
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
    class Told(Rations):
        def __init__(self) -> None:
            self.taken: list[tuple[int, bool]] = []

        def refusal(self, uid: int) -> str:
            return "enough" if self.taken else ""

        def took(self, uid: int, seconds: float, *, useful: bool) -> None:
            self.taken.append((uid, useful))

    rations, seen = Told(), []
    attaching = marks.Marks({}, lambda program, path, offset, counter, pid: 0, rations)
    for name in ("libtorch_cpu.so", "libtorch_cpu-2.so"):
        with mapped(tmp_path / name, b"no ELF" * 1000) as path:
            seen += [seen_through(attaching, path) for _ in range(2)]
    assert rations.taken == [(os.geteuid(), False)]
    assert seen[0] is seen[1]
    assert "not" in seen[0].reason
    assert {attached.reason for attached in seen[2:]} == {"enough"}


class Attaching(marks.Marks):
    """Puts no probe anywhere: each mark's descriptor is one of an open file that tells whether it was closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[int] = []
        names = [mark.program for mark in (*marks.IN_CPU, *marks.IN_PYTHON, *marks.IN_INTERPRETER)]
        super().__init__(dict.fromkeys(names, 0), self._give)

        def find(path: str, prefixes: Sequence[bytes]) -> symbols.Found | symbols.Unreadable:
            return {prefix.decode(): [Symbol(prefix.decode(), 64)] for prefix in prefixes}

        monkeypatch.setattr(symbols, "find_apart", find)

    def _give(self, program: int, path: str, offset: int, counter: int, pid: int | None) -> int:
        self.given.append(os.open("/dev/null", os.O_RDONLY))
        return self.given[-1]

    def open(self) -> list[int]:
        return sorted({one for one in self.given if os.path.exists(f"/proc/self/fd/{one}")})  # numbers come again


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
    monkeypatch.setattr(marks, "MAX_LIBRARIES", 4)
    monkeypatch.setattr(marks, "RELEASE_SOONEST_SECONDS", 0.0)
    attaching = Attaching(monkeypatch)
    most = 0
    for number in range(12):
        with mapped(tmp_path / f"libtorch_cpu-{number}.so", b"%d" % number * 3000) as library:
            attached = seen_through(attaching, library)
            assert attached.found.get("record"), attached.reason
            most = max(most, len(attaching.open()))
    assert most <= 4 * (len(marks.IN_CPU) + 1) + len(marks.IN_INTERPRETER)
    attaching.close()


def test_what_cannot_be_read_takes_no_marks_away(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "maps").mkdir()
    assert executed.files_executed({(1, 2)}, str(tmp_path)) is None


def test_a_process_that_is_gone_is_a_reason() -> None:
    attached = marks.Marks({}, lambda program, path, offset, counter, pid: 0).attach(
        1 << 30, "/x/libtorch_cpu.so", 1, 2
    )
    assert attached is not None
    assert "cannot be opened" in attached.reason
    assert attached.found == {}
