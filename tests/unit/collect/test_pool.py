"""Helpers: what they answer, what becomes of those that hang. A FIFO without a writer keeps who opens it waiting."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks import pace
from tests.builders.waiting import wait_until
from trainprobe.bpf.attach.mapped_files import executable_maps
from trainprobe.collect.helper_process import Helper, Late
from trainprobe.collect.pool import (
    ABANDONED,
    ABANDONED_OF_ONE,
    AGAIN_SECONDS,
    DIED_SECONDS,
    LIMIT_SECONDS,
    OF_ONE_USER,
    OF_ROOT,
    ROOT,
    SLOW_ROOM_SECONDS,
    SLOW_SHARE,
    HelperPool,
    Read,
)
from trainprobe.collect.procfs import Proc
from trainprobe.collect.source import Failed
from trainprobe.runtime.sampling import unanswered
from trainprobe.runtime.sampling.unanswered import ENDED, ENDED_REMEDY, NOT_BEGUN


class Place:
    """A folder as /proc, with a file that answers and one that does not."""

    def __init__(self, folder: Path) -> None:
        self.fifo, self.file = folder / "hangs", folder / "file"
        os.mkfifo(self.fifo)
        self.file.write_bytes(b"x")

    def hangs(self, pid: int) -> Read:
        return Read(pid, b"memory", bytes(self.fifo))

    def answers(self, pid: int) -> Read:
        return Read(pid, b"read", bytes(self.file), 10)

    def free(self) -> None:
        """Whoever waits goes on, from now on."""
        self.fifo.unlink()
        self.fifo.write_bytes(b"late")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def made() -> Iterator[list[Helper]]:
    helpers: list[Helper] = []
    yield helpers
    for one in helpers:
        one.kill()


def pool_of(made: list[Helper], owner: Callable[[int], int] = lambda _: ROOT, **how: object) -> HelperPool:
    def start() -> Helper:
        made.append(Helper())
        return made[-1]

    return HelperPool(owner, start=start, **how)  # type: ignore[arg-type]


def test_answers_come_through_in_order(place: Place, made: list[Helper]) -> None:
    pool, large = pool_of(made), place.file.with_name("large")
    large.write_bytes(b"y" * (5 << 20))
    gone = Read(1, b"read", b"/nothing", 10)
    assert pool.ask([place.answers(1), gone, Read(1, b"read", bytes(large), 4 << 20), place.answers(2)]) == [
        b"x", None, b"y" * (4 << 20), b"x",
    ]  # fmt: skip
    assert pool.ask([]) == []
    assert pool.ask([Read(1, b"no such operation", b"")]) == [None]
    assert pool.hanging() == ()
    assert len(made) == 1


def test_a_descriptor_is_handed_over(place: Place, made: list[Helper]) -> None:
    """memfd_create(2) stands in for perf_event_open(2), which some machines refuse."""
    call = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
    counter = Read(1, b"counter", b"", 0, call)
    answers = pool_of(made).ask([counter, place.answers(1), counter, Read(1, b"counter", b"", 0, 1 << 20)])
    assert answers[1::2] == [b"x", b"%d" % errno.ENOSYS]
    for descriptor in answers[::2]:
        assert isinstance(descriptor, int)
        os.write(descriptor, b"ours")
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)


def test_a_helper_has_the_rights_to_read_and_no_others(made: list[Helper], place: Place) -> None:
    pool_of(made).ask([place.answers(1)])
    status = Path(f"/proc/{made[0].pid}/status").read_text()
    held = int(status.split("CapEff:")[1].split()[0], 16)
    assert held & ~(1 << 2 | 1 << 19 | 1 << 38 | 1 << 40) == 0


def test_one_that_hangs_is_killed_replaced_and_told_of_until_it_answers(place: Place, made: list[Helper]) -> None:
    pool = pool_of(made)
    began = time.monotonic()
    assert pool.ask([place.answers(2), place.hangs(1), place.answers(3)]) == [b"x", None, b"x"]
    assert pool.ask([place.hangs(1)]) == [None]
    assert pace.within(time.monotonic() - began, LIMIT_SECONDS + 0.5)
    assert pool.hanging() == (1,)
    assert made[0].ended()
    assert pool.ask([place.answers(1)]) == [b"x"], "what only the kernel is asked goes on"
    place.free()

    def answered() -> bool:
        pool.look_after()
        return not pool.hanging()

    wait_until(answered)
    assert pool.ask([place.hangs(1)]) == [b"late"]


@pytest.mark.parametrize(("uid", "most"), [(1000, OF_ONE_USER), (ROOT, OF_ROOT)])
def test_reads_of_one_user_that_hang_stop_no_others(
    place: Place, made: list[Helper], monkeypatch: pytest.MonkeyPatch, uid: int, most: int
) -> None:
    pool = pool_of(made, lambda pid: uid if pid < 100 else 1001)
    waited: list[float] = []
    wait = Helper.wait

    def noted(self: Helper, limit: Callable[[int], float]) -> list[bytes | int | None]:
        try:
            return wait(self, limit)
        except Late as late:
            waited.append(limit(late.at))
            raise

    monkeypatch.setattr(Helper, "wait", noted)
    for pid in range(1, 40):
        assert pool.ask([place.hangs(pid)]) == [None]
    assert sorted(waited, reverse=True)[:2] == [LIMIT_SECONDS, AGAIN_SECONDS]
    assert len(waited) <= most
    assert len(pool.hanging()) <= most
    assert pool.ask([place.answers(100)]) == [b"x"]
    assert sum(not one.ended() for one in made) <= 2


def test_a_helper_that_cannot_be_killed_is_abandoned_and_costs_its_user_a_place(
    place: Place, made: list[Helper], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(made, lambda pid: 1000 if pid < 100 else 1001)
    monkeypatch.setattr(Helper, "kill", lambda self: False)
    for pid in range(1, 10):
        pool.ask([place.hangs(pid)])
    assert pool.abandoned() == [(made[0].pid, 1, 1000)]
    assert ABANDONED_OF_ONE == 1
    assert pool.ask([place.answers(1), place.answers(100)]) == [b"x", b"x"]
    assert pool.ask([Read(100, b"space", b"/")]) != [None]
    assert pool.ask([Read(9, b"space", b"/")]) == [None], "it may hang, too"
    os.kill(made[0].pid, signal.SIGKILL)
    place.free()

    def answered() -> bool:
        pool.look_after()
        return not pool.hanging()

    wait_until(answered)
    assert pool.abandoned() == []


def test_other_processes_of_ours_that_cannot_be_killed_take_the_same_places(place: Place, made: list[Helper]) -> None:
    pool = pool_of(made, lambda pid: 1000 + pid)
    pool.elsewhere = lambda: [1001]
    assert pool.ask([place.answers(1), Read(1, b"space", b"/"), Read(2, b"status", b"/")])[:2] == [b"x", None]
    assert [pool.has_room(pid) for pid in (1, 2)] == [False, True]
    pool.elsewhere = lambda: range(2000, 2000 + ABANDONED)
    assert pool.ask([place.answers(2), Read(2, b"space", b"/")]) == [b"x", None]
    assert not pool.has_room(2)


def test_slow_reads_of_one_user_take_a_share_of_the_time_and_no_more(place: Place, made: list[Helper]) -> None:
    now = 100.0
    pool = pool_of(made, lambda pid: {1: 1000, 2: 1001}[pid], clock=lambda: now)
    ask, read = pool._asked, 0

    def slow(reads: list[Read]) -> list[bytes | int | None]:
        nonlocal now, read
        if reads[0].pid == 1:
            now, read = now + 0.2, read + 1
        return ask(reads)

    pool._asked = slow  # type: ignore[method-assign]
    began = now
    while now < began + 50:
        pool.ask([place.answers(1)])
        assert pool.ask([place.answers(2)]) == [b"x"]
        now += 0.1
    assert 0.2 * read <= SLOW_ROOM_SECONDS + SLOW_SHARE * 50 + 0.2
    assert read >= 10


def test_slow_reads_among_those_of_others_are_his_whose_they_are(place: Place, made: list[Helper]) -> None:
    """What limits are read by is asked for all in one request."""
    pool = pool_of(made, {1: 1000, 2: 1001}.__getitem__)

    def answer() -> None:
        with contextlib.suppress(OSError):  # nobody reads
            os.close(os.open(place.fifo, os.O_WRONLY | os.O_NONBLOCK))

    slow = 0
    for _ in range(12):
        late = threading.Timer(0.2, answer)
        late.start()
        began = time.monotonic()
        assert pool.ask([place.hangs(1), place.answers(2)]) == [None, b"x"]
        slow += time.monotonic() - began >= 0.1
        late.join()
    assert 1 <= slow <= 6


def test_a_helper_that_ends_is_replaced(place: Place, made: list[Helper]) -> None:
    pool = pool_of(made)
    for _ in range(3):
        assert pool.ask([place.answers(1)]) == [b"x"]
        os.kill(made[-1].pid, signal.SIGKILL)
    wait_until(lambda: made[-1].ended())
    pool.look_after()
    assert pool.ask([place.answers(1)]) == [b"x"]
    assert len(made) == 4


class Doomed(Helper):
    """One that a read of the FIFO ends."""

    def ask(self, reads: Sequence[tuple[bytes, bytes, int, int]]) -> None:
        super().ask(reads)
        if any(path.endswith(b"hangs") for _, path, _, _ in reads):
            wait_until(lambda: reads[max(0, self._at())][1].endswith(b"hangs"))
            os.kill(self.pid, signal.SIGKILL)


def test_what_helpers_end_over_costs_no_others_their_answer_and_is_tried_again(place: Place) -> None:
    now = 0.0
    pool = HelperPool(start=Doomed, clock=lambda: now)
    assert pool.ask([place.answers(2), place.hangs(1), place.answers(3)]) == [b"x", None, b"x"]
    assert pool.is_silent(1)
    assert pool.hanging() == pool.died() == (1,)
    assert unanswered.processes(pool.hanging(), (), pool.died()) == Failed(ENDED(pid=1), ENDED_REMEDY())
    now += DIED_SECONDS
    assert pool.died() == ()
    pool.close()


def test_helpers_end_with_whom_they_help(place: Place, made: list[Helper]) -> None:
    pool = pool_of(made)
    pool.ask([place.answers(1)])
    pool.close()
    wait_until(made[0].ended)


def refuse(*_: object, **__: object) -> None:
    raise BlockingIOError


def test_where_no_process_can_be_started_nothing_is_answered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", refuse)
    pool = HelperPool()
    assert pool.ask([place.answers(1)]) == [None]
    assert pool.is_silent(1), "it is not gone"
    assert unanswered.processes((), (), pool.died()) == Failed(NOT_BEGUN(), ENDED_REMEDY())


def test_marks_wait_for_helpers_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose maps nobody could read is asked again; the pool of other threads notes it for the report."""
    monkeypatch.setattr("subprocess.Popen", refuse)
    proc = Proc()
    with pytest.raises(BlockingIOError):
        list(executable_maps(os.getpid(), proc.apart()))
    assert proc.pool.died()
