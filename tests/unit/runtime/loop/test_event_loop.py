from __future__ import annotations

import os
import time

import pytest

from trainprobe.runtime.loop.event_loop import MIN_GAP_NS, QUICK, SPREAD_NS, Loop


class ReaderQueue:
    """A task that is due every ``every_ns`` and stops the loop after ``most`` turns."""

    def __init__(self, loop: Loop, every_ns: int, most: int) -> None:
        self.loop, self.every_ns, self.most = loop, every_ns, most
        self.turns: list[tuple[int, bool]] = []
        self.began = time.monotonic_ns()

    def due_ns(self) -> int:
        return (self.turns[-1][0] if self.turns else self.began) + self.every_ns

    def turn(self, *, woken: bool) -> None:
        self.turns.append((time.monotonic_ns(), woken))
        if len(self.turns) == self.most:
            self.loop.stop()


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)


def test_turns_come_when_they_are_due() -> None:
    loop = Loop()
    task = ReaderQueue(loop, 30_000_000, 4)
    loop.run(task)
    gaps = [later[0] - earlier[0] for earlier, later in zip(task.turns, task.turns[1:], strict=False)]
    assert all(30_000_000 <= gap < 80_000_000 for gap in gaps), gaps
    assert not any(woken for _, woken in task.turns)


def test_a_wake_up_brings_a_turn_at_once(pipe: tuple[int, int]) -> None:
    loop = Loop()
    loop.on_wake(pipe[0])
    task = ReaderQueue(loop, 10_000_000_000, 1)
    os.write(pipe[1], b"x")
    loop.run(task)
    assert task.turns[0][1] is True
    assert task.turns[0][0] - task.began < 50_000_000


class Counting:
    """Reads what another process writes, byte by byte with a pause between two, and stops the loop after the last."""

    def __init__(self, loop: Loop, pipe: tuple[int, int], count: int, pause: float) -> None:
        self.loop, self.pipe, self.count = loop, pipe, count
        self.turns = self.taken = 0
        loop.on_wake(pipe[0])
        child = os.fork()
        if child == 0:
            for _ in range(count):
                os.write(pipe[1], b"x")
                time.sleep(pause)
            os._exit(0)
        began = time.monotonic_ns()
        loop.run(self)
        self.took_ns = time.monotonic_ns() - began
        os.waitpid(child, 0)

    def due_ns(self) -> int:
        return 1 << 62

    def turn(self, *, woken: bool) -> None:
        self.turns += 1
        self.taken += len(os.read(self.pipe[0], 4096))
        if self.taken == self.count:
            self.loop.stop()


def test_a_burst_of_wake_ups_is_handled_in_few_turns(pipe: tuple[int, int]) -> None:
    """500 events in 50 ms: at most a turn each five milliseconds, and none is forgotten."""
    task = Counting(Loop(), pipe, 500, 0.0001)
    assert task.turns <= task.took_ns / MIN_GAP_NS + 2
    assert task.taken == 500


def test_what_goes_on_and_on_brings_a_turn_now_and_then(pipe: tuple[int, int]) -> None:
    """An event each two milliseconds for half a second: a few turns at once, then one each ``SPREAD_NS``; the first
    event after a pause finds room again."""
    loop = Loop()
    task = Counting(loop, pipe, 250, 0.002)
    assert task.taken == 250
    assert task.turns <= QUICK + task.took_ns / SPREAD_NS + 1

    time.sleep(3 * SPREAD_NS / 1e9)
    again = ReaderQueue(loop, 10_000_000_000, 1)
    os.write(pipe[1], b"x")
    loop.run(again)
    assert again.turns[0][0] - again.began < 50_000_000


def test_what_is_not_read_does_not_spin(pipe: tuple[int, int]) -> None:
    """The ring stays readable until it is drained: one wake-up, one turn."""
    loop = Loop()
    loop.on_wake(pipe[0])
    os.write(pipe[1], b"x")
    task = ReaderQueue(loop, 60_000_000, 2)
    loop.run(task)
    assert [woken for _, woken in task.turns] == [True, False]


def test_handlers_run_without_a_turn(pipe: tuple[int, int]) -> None:
    loop = Loop()
    seen: list[bytes] = []

    def handler() -> None:
        seen.append(os.read(pipe[0], 10))
        loop.stop()

    loop.on_readable(pipe[0], handler)
    os.write(pipe[1], b"abc")
    task = ReaderQueue(loop, 1 << 62, 1)
    loop.run(task)
    assert (seen, task.turns) == ([b"abc"], [])


def test_a_forgotten_descriptor_is_silent(pipe: tuple[int, int]) -> None:
    loop = Loop()
    loop.on_readable(pipe[0], lambda: pytest.fail("heard"))
    os.write(pipe[1], b"x")
    loop.forget(pipe[0])
    loop.forget(pipe[0])
    loop.run(ReaderQueue(loop, 20_000_000, 1))


def test_it_can_run_again_after_a_stop() -> None:
    loop = Loop()
    for _ in range(2):
        task = ReaderQueue(loop, 6_000_000, 1)
        loop.run(task)
        assert len(task.turns) == 1
