"""What helpers find out of processes (``pool``), as they read it. None: the process is gone (or not ours to read, or
keeps its readers waiting), an ordinary answer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from trainprobe.collect.owners import Owners
from trainprobe.collect.pool import HelperDeaths, HelperPool, Read
from trainprobe.model.sample import SentBytes


class Reads:
    def __init__(self, root: str, owners: Owners, deaths: HelperDeaths) -> None:
        self.root = root
        self.owners = owners
        """Who answers for an id."""
        self.owner = partial(owners.of_process, root=root)
        """The user who answers for a process. Raises OSError: there is none."""
        self.pool = HelperPool(self.owner, deaths=deaths)
        self.hanging = self.pool.hanging
        """Processes whose reads do not come back."""
        self.is_silent = self.pool.is_silent

    def read(self, pid: int, name: str, limit: int) -> bytes | None:
        """At most ``limit`` bytes of a file of the process."""
        return self.ask(pid, "read", name, limit)

    def several(self, pid: int, limits: Mapping[str, int]) -> list[bytes | None]:
        """Files of one process, for little more than the price of one, by how much of each is read."""
        return self._ask([self._read(pid, "read", name, limit) for name, limit in limits.items()])

    def ask(self, pid: int, operation: str, name: str, first: int = 0, second: int = 0) -> bytes | None:
        """What a helper finds out: an operation of ``helper_program``."""
        return self._ask([self._read(pid, operation, name, first, second)])[0]

    def each(self, pids: Iterable[int], operation: str, name: str, first: int = 0, second: int = 0) -> dict[int, bytes]:
        """The same of many processes, for little more than the price of one."""
        wanted = list(pids)
        answers = self._ask([self._read(pid, operation, name, first, second) for pid in wanted])
        return {pid: answer for pid, answer in zip(wanted, answers, strict=True) if answer is not None}

    def _read(self, pid: int, operation: str, name: str, first: int = 0, second: int = 0) -> Read:
        path = os.fsencode(f"{self.root}/{pid}/{name}")
        return Read(pid, operation.encode(), path, first, second) if b"\0" not in path else Read(pid, b"", b"")

    def _ask(self, reads: Sequence[Read]) -> list[bytes | None]:
        return [None if isinstance(answer, int) else answer for answer in self.pool.ask(reads)]

    def file(self, pid: int, name: str) -> tuple[int, int, int] | None:
        """Device, number and length of a file that a link of the process leads to."""
        return next(iter(self.files(pid, (name,))), None)

    def files(self, pid: int, names: Iterable[str]) -> list[tuple[int, int, int]]:
        """The same of many links, for little more than the price of one: of those that can be read."""
        answers = self._ask([self._read(pid, "status", name) for name in names])
        words = (answer.split() for answer in answers if answer is not None)
        return [(int(device), int(number), int(length)) for device, number, length in words]

    def counter(self, pid: int, tid: int, call: int) -> bytes | int | None:
        """Count the instructions of a thread: a descriptor, the caller's to close, or an error's number. ``call``: that
        of perf_event_open(2)."""
        return self.pool.ask([Read(pid, b"counter", b"", tid, call)])[0]

    def sent_bytes(self, pid: int, fd: int, call: int) -> SentBytes | None:
        """What a TCP connection of the process has sent; None: it is none. ``call``: the number of pidfd_getfd(2)."""
        answer = self._ask([Read(pid, b"sent", b"%d" % fd, pid, call)])[0]
        if answer is None:
            return None
        acknowledged, busy_us = (int(word) for word in answer.split())
        return SentBytes(acknowledged, 1000 * busy_us, time.monotonic_ns())

    def user(self, uid: int) -> bytes | None:
        """A user's name; None: there is none, or the directory service does not answer."""
        return self._ask([Read(-1 - uid, b"user", b"", uid)])[0]
