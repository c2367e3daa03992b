"""One loop, one thread: file descriptors wake it, a due time wakes it, and then the task has its turn."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol

from trainprobe.derive.rate_limiter import RateLimiter

MIN_GAP_NS = 5_000_000
"""Wake-ups closer together than this are handled in one turn: a burst of rare events costs no more than one."""

QUICK, SPREAD_NS = 8, 40_000_000
"""So many turns follow at once when something happens after a quiet time, and one each so long while it goes on, as
where a host starts a hundred processes a second."""

LONGEST_NS = 3_600_000_000_000  # epoll counts its time limit in an int of milliseconds


class Task(Protocol):
    def due_ns(self) -> int:
        """CLOCK_MONOTONIC when it wants its next turn at the latest."""

    def turn(self, *, woken: bool) -> None:
        """``woken``: something rare happened, it is not just the time."""


class Loop:
    """Runs a task until ``stop``."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._monotonic_ns = monotonic_ns
        self._woken = False
        self._stopped = False
        self._allowance = RateLimiter(QUICK, SPREAD_NS)

    def on_readable(self, fd: int, handler: Callable[[], None]) -> None:
        """Call ``handler`` while ``fd`` is readable; it reads what is there."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def on_wake(self, fd: int) -> None:
        """Give the task a turn when ``fd`` becomes readable: told once for each time it does (edge-triggered),
        because what the ring holds is read in the turn and not here."""
        self._handlers[fd] = self.wake
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLET)

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            try:
                self._epoll.unregister(fd)
            except OSError:
                pass  # closed already, which takes it out as well

    def wake(self) -> None:
        self._woken = True

    def stop(self) -> None:
        """Return from ``run`` after the handler or turn that is at work."""
        self._stopped = True

    def run(self, task: Task) -> None:
        """Until ``stop``; may be called again after that."""
        self._stopped = False
        last = self._monotonic_ns() - MIN_GAP_NS
        while not self._stopped:
            due = task.due_ns()
            if self._woken:
                due = min(due, self._allowance.next_ns())
            due = max(due, last + MIN_GAP_NS)
            self._wait(due - self._monotonic_ns())
            now = self._monotonic_ns()
            if now >= due and not self._stopped:
                woken, self._woken = self._woken, False
                if woken and now >= self._allowance.next_ns():
                    self._allowance.count_one(now)
                last = now
                task.turn(woken=woken)

    def _wait(self, pause_ns: int) -> None:
        if self._woken and pause_ns > 0:  # it knows, and each further event would wake it
            time.sleep(pause_ns / 1e9)
            pause_ns = 0
        for fd, _events in self._epoll.poll(min(max(0, pause_ns), LONGEST_NS) / 1e9):
            handler = self._handlers.get(fd)
            if handler is not None and not self._stopped:
                handler()

    def close(self) -> None:
        self._epoll.close()
