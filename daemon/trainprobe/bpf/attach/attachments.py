# SPDX-License-Identifier: Apache-2.0
"""Programs that serve watched processes alone are attached only while there are some.

Every system call, switch and fork of the host pays for a traced one, also where nobody trains. Python processes that
have just started count: they may turn out to train, and their files and waits are kept from the start.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from ctypes import c_uint32

from trainprobe.bpf import abi
from trainprobe.bpf.attach import syscalls
from trainprobe.bpf.attach.closing import close_in_background
from trainprobe.bpf.compile.kernel_types import TRACEPOINTS, find_tracefs
from trainprobe.bpf.load.loader import Loaded
from trainprobe.bpf.load.maps import Levels, Map
from trainprobe.bpf.read.ledgers import Ledgers

IDLE_NS = 60_000_000_000
"""For so long nothing is watched before they are detached; a Python that is older trains no longer by surprise."""
LOOK_NS = 5_000_000_000
TRIES = 6
"""So often a program is attached again that the kernel refuses, LOOK_NS apart. Then it is missing until the next idle
time has passed."""
KEPT = frozenset(("on_exec", "on_oom", "on_request_done", "on_major_fault", "on_clock"))
"""They find who trains, or count for the host; none runs at a system call, a switch or a fork."""


class Attachments:
    """Attached at the start. To detach them all takes seconds, which a thread spends; to attach them some 10 ms."""

    def __init__(
        self,
        loaded: Loaded,
        processes: Map[c_uint32, abi.Process],
        ledgers: Ledgers,
        levels: Levels,
        helpers: Collection[int],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """``helpers``: processes of ours, which are Pythons too; on an idle host each search starts one."""
        self._helpers = helpers
        self._loaded, self._processes, self._ledgers, self._levels = loaded, processes, ledgers, levels
        self._starts = loaded.map("starts", c_uint32, abi.Start)
        self._clock = clock
        self._busy_at = self._looked_at = clock()
        self._detached: list[str] = []
        self._refused: list[str] = []
        self._tries = 0
        self._closing: list[tuple[str, int]] = []
        self._closer: threading.Thread | None = None
        self._stop = threading.Event()
        self._faults = -1
        self._looks: list[int] = []

    @property
    def idle(self) -> bool:
        """Whether they are detached, or about to be."""
        return self._closer is not None

    def look_after(self) -> None:
        """Detach them where nothing was watched for a minute."""
        now = self._clock()
        if self.idle or now - self._looked_at < LOOK_NS:
            return
        self._looked_at = now
        if self._refused and self._tries < TRIES:
            self._attach_refused()
        if any(self._may_train(pid, process, now) for pid, process in self._entries()):
            self._busy_at = now
        elif now - self._busy_at >= IDLE_NS:
            self._detach()

    def started(self, pid: int) -> None:
        """A process that is not watched has run a program: attach them again where it is a Python."""
        if self.idle and pid not in self._helpers and self._processes.get(c_uint32(pid)) is not None:
            self.resume()

    def resume(self) -> None:
        """Attach what is not; returns when it is done."""
        self._busy_at = self._clock()
        if self._closer is None:
            return
        self._stop_closing()
        # As at the start: of two programs at one event the second one needs what the first has noted.
        self._refused, self._detached, self._tries = self._detached[::-1], [], 0
        self._attach_refused()
        for pid, _ in self._entries():
            if not os.path.exists(f"/proc/{pid}"):
                self._forget(pid)

    def trace_faults(self, on: bool) -> None:
        """Attach the program of page faults, or detach it. Again does no harm."""
        if on and self._faults < 0:
            self._faults = self._attach("raw:page_fault_user on_page_fault")
        elif not on and self._faults >= 0:
            os.close(self._faults)
            self._faults = -1

    def trace_looks(self, on: bool) -> None:
        """Attach the program that tells which files a driver asks for, or detach it. Again does no harm."""
        if on and not self._looks:
            events = syscalls.look_events(os.uname().machine)
            attached = (self._attach(f"syscalls:{event} on_look_end") for event in events)
            self._looks = [descriptor for descriptor in attached if descriptor >= 0]
        elif not on and self._looks:
            close_in_background([self._looks])  # each waits for a grace period
            self._looks = []

    def _attach_refused(self) -> None:
        """Try each of them; what the kernel still refuses is named missing."""
        self._tries += 1
        waiting, self._refused, missing = self._refused, [], self._loaded.missing
        for label in waiting:
            descriptor = self._attach(label)
            if descriptor >= 0:
                self._loaded.attached[label] = descriptor
            else:
                self._refused.append(label)
        tried, refused = _events(waiting), _events(self._refused)
        missing[:] = [event for event in missing if event not in tried] + list(refused)

    def _entries(self) -> Iterator[tuple[int, abi.Process]]:
        return ((key.value, process) for key, process in self._processes.entries())

    def _may_train(self, pid: int, process: abi.Process, now: int) -> bool:
        if pid in self._helpers:
            return False
        if not process.tentative:
            return os.path.exists(f"/proc/{pid}")
        ledger = self._ledgers.get(pid)
        return ledger is not None and now - ledger.opened < IDLE_NS

    def _detach(self) -> None:
        for pid, _ in self._entries():
            self._forget(pid)
        attached = self._loaded.attached
        labels = [label for label in attached if label.rpartition(" ")[2] not in KEPT]
        self._closing = [(label, attached.pop(label)) for label in labels]
        self._detached, self._refused = self._refused, []
        self._closer = threading.Thread(target=self._close, daemon=True)
        self._closer.start()

    def _close(self) -> None:
        while self._closing and not self._stop.is_set():
            label, descriptor = self._closing.pop()
            os.close(descriptor)  # waits for a grace period
            self._detached.append(label)

    def _attach(self, label: str) -> int:
        """``label``: the event and the program, as ``install`` keeps them. Negative where it cannot be done."""
        event, _, name = label.partition(" ")
        category, _, event = event.partition(":")
        program, calls = self._loaded.programs[name], self._loaded.calls
        try:
            if category != "raw":
                return calls.attach_tracepoint(program, find_tracefs() or "", category, event)
            # A program that was loaded for its event's types is attached to that event, and takes no name.
            return calls.attach_raw_tracepoint(program, None if event in TRACEPOINTS else event)
        except OSError:
            return -1

    def _forget(self, pid: int) -> None:
        """All of it: while they are detached, nobody sees it end."""
        self._starts.delete(c_uint32(pid))
        self._levels[pid] = 0
        self._ledgers.delete(pid)
        self._processes.delete(c_uint32(pid))

    def close(self) -> None:
        """Leave what is attached to ``Loaded``, but for page faults and looks."""
        self.trace_faults(False)
        self.trace_looks(False)
        self._stop_closing()

    def _stop_closing(self) -> None:
        """What is not closed yet stays attached."""
        if self._closer is None:
            return
        self._stop.set()
        self._closer.join()
        self._closer = None
        self._stop.clear()
        self._loaded.attached.update(self._closing)
        self._closing.clear()


def _events(labels: list[str]) -> dict[str, None]:
    """Each event once, in their order."""
    return dict.fromkeys(label.partition(" ")[0] for label in labels)
