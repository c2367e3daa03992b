"""The caller's half of `run` and `attach`: it waits, passes on what comes, and cannot be ended by what it watches.

It loads nothing into the kernel and needs no rights. Whatever happens to the other half, the command goes on.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainprobe.model.dataclass import dataclass
from trainprobe.runtime.loop.event_loop import Loop
from trainprobe.runtime.loop.signals import Received, Signals
from trainprobe.runtime.session import probe_protocol
from trainprobe.runtime.session.probe_part import ProbePart
from trainprobe.text.saying import Text, saying, word

START_NS = 120_000_000_000
REPORT_NS = 30_000_000_000
FOREVER_NS = 1 << 62
ENDED_EARLY = word("the half that loads eBPF programs ended early")
GONE, INTERRUPT = "gone", "interrupt"  # reasons to stop waiting, beside the kinds of messages


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the other half does not watch."""

    reason: Text
    remedy: Text = ""
    forbidden: bool = False  # for want of rights


class CutError(Exception):
    """The report's file did not come to its end."""

    def __init__(self, reason: Text) -> None:
        super().__init__(reason)
        self.reason = reason


class Session:
    """One observation, from the order to the report."""

    def __init__(
        self,
        part: ProbePart,
        signals: Signals,
        *,
        on_frame: Callable[[bytes], None],
        on_live: Callable[[str], None],
        on_signal: Callable[[Received], None],
    ) -> None:
        """``on_signal``: what a signal means once the other half watches."""
        self._part = part
        self._signals = signals
        self._on_frame = on_frame
        self._on_live = on_live
        self._on_signal = on_signal
        self._loop = Loop()
        self._loop.on_readable(part.fileno(), self._read_messages)
        self._loop.on_readable(signals.fileno(), self._take_signals)
        self._stop_on: frozenset[str] = frozenset()
        self._limit_ns = FOREVER_NS
        self._seen: set[str] = set()  # kinds of what has happened so far
        self._pieces: list[str] = []  # of the report's file, not yet taken
        self.text: str | None = None
        self.failure: Failure | None = None
        self.interrupted = 0
        """The first signal that came before the other half watched."""

    def load(self, *, patient: bool) -> bool:
        """Wait until the programs are in the kernel (``patient``: the other half may be asking for a password). False:
        ``failure`` or ``interrupted`` says why not."""
        loaded = self._reached(probe_protocol.LOADED, FOREVER_NS if patient else START_NS)
        if patient and GONE in self._seen and not self._seen & {probe_protocol.LOADED, probe_protocol.FAILED}:
            remedy = word("allow this user to run trainprobe with sudo, or run it as root")
            reason = word("sudo did not start the half that loads eBPF programs")
            self.failure = Failure(reason, remedy, forbidden=True)
        return loaded

    def start(self, child: int | None = None) -> bool:
        """Wait until the other half watches: ``child``, which waits to become the command, or what the order named.
        False: ``failure`` or ``interrupted`` says why not."""
        if child is not None:
            self._part.child(child)
        return self._reached(probe_protocol.READY, START_NS)

    def _reached(self, what: str, limit_ns: int) -> bool:
        self._wait(limit_ns, {what, probe_protocol.FAILED, GONE, INTERRUPT})
        if what not in self._seen and not self.failure and not self.interrupted:
            self.failure = Failure(word("the half that loads eBPF programs did not answer"))
        return what in self._seen and not self.interrupted

    def watch(self, until_fd: int | None = None) -> None:
        """Until ``until_fd`` (of a child) is readable, whatever becomes of the other half; without one, until what is
        watched ends, the other half does, or ``stop``."""
        if until_fd is None:
            self._wait(FOREVER_NS, {probe_protocol.ENDED, GONE})
            return
        self._loop.on_readable(until_fd, self._loop.stop)
        self._wait(FOREVER_NS, set())
        self._loop.forget(until_fd)

    def stop(self) -> None:
        self._loop.stop()

    def finish(self, last: bytes) -> str | None:
        """Ask for the report (``probe_protocol.end``) and wait for its text; ``file`` then brings what goes into one.
        None: ``failure`` says why there is none. A signal means nobody any more: the command has ended, and has no
        pid."""
        self._loop.forget(self._signals.fileno())
        if not self._part.ended:
            self._part.end(last)
            self._wait(REPORT_NS, {probe_protocol.TEXT, probe_protocol.FAILED, GONE})
        if self.text is None and self.failure is None:
            self.failure = Failure(word("the half that loads eBPF programs gave no report"))
        return self.text

    def file(self) -> Iterator[str]:
        """What goes into the report's file, as it comes. Raises CutError where the end does not."""
        while True:
            pieces, self._pieces = self._pieces, []
            yield from pieces
            if probe_protocol.WHOLE in self._seen and not self._pieces:
                return
            self._seen.discard(probe_protocol.FILE)
            self._wait(REPORT_NS, {probe_protocol.FILE, probe_protocol.WHOLE, probe_protocol.FAILED, GONE})
            if not self._pieces and probe_protocol.WHOLE not in self._seen:
                reason = self.failure.reason if self.failure else ENDED_EARLY
                raise CutError(saying(reason) if isinstance(reason, str) else reason)

    def close(self) -> None:
        self._loop.close()
        self._part.close()

    def due_ns(self) -> int:
        return self._limit_ns

    def turn(self, *, woken: bool) -> None:
        """The time limit has come."""
        del woken
        self._loop.stop()

    def _wait(self, limit_ns: int, stop_on: set[str]) -> None:
        if self._seen & stop_on:
            return
        self._stop_on = frozenset(stop_on)
        self._limit_ns = min(time.monotonic_ns() + limit_ns, FOREVER_NS)
        self._loop.run(self)

    def _take_signals(self) -> None:
        for received in self._signals.read():
            if INTERRUPT not in self._stop_on:
                self._on_signal(received)
            elif received.number != signal.SIGURG:  # which ends nobody who does not wait for it
                self.interrupted = self.interrupted or received.number
                self._loop.stop()

    def _read_messages(self) -> None:
        for line in self._part.messages():
            frame = probe_protocol.frame_of(line)
            if frame is not None:
                self._on_frame(frame)
            else:
                self._on_message(line)
        if self._part.ended:
            self._loop.forget(self._part.fileno())
            if self.text is None and self.failure is None:
                self.failure = Failure(ENDED_EARLY)
            self._happened({GONE})

    def _on_message(self, line: bytes) -> None:
        try:
            message: dict[str, Any] = json.loads(line)
            self.text = message.get(probe_protocol.TEXT, self.text)
        except (ValueError, AttributeError) as error:
            self.failure = Failure(
                saying("the half that loads eBPF programs sent what cannot be understood ({error})", error=error)
            )
            return
        if probe_protocol.FILE in message:
            self._pieces.append(str(message[probe_protocol.FILE]))
        if probe_protocol.LIVE in message:
            self._on_live(str(message[probe_protocol.LIVE]))
        if probe_protocol.FAILED in message:
            failed = message[probe_protocol.FAILED]
            forbidden = bool(failed.get("forbidden"))
            self.failure = Failure(str(failed.get("reason")), str(failed.get("remedy", "")), forbidden)
        self._happened(message.keys())

    def _happened(self, what: Iterable[str]) -> None:
        self._seen.update(what)
        if self._stop_on.intersection(what):
            self._loop.stop()
