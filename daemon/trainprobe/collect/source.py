"""The three outcomes of a source, and the registry that turns them into what the report says about sources."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message
from trainprobe.model.moment import NS
from trainprobe.model.sample import SourceState, SourceStatus

T = TypeVar("T")
Reason: TypeAlias = "str | Message"
"""A sentence as a message; a command, or what a library says of its error, as it is."""

RETRY_UNAVAILABLE_NS = 60 * NS
SECONDS_ANEW_NS = 60 * NS
"""How long a source took is told anew so seldom."""
RETRY_FAILED_NS = (1 * NS, 2 * NS, 4 * NS, 8 * NS, 16 * NS, 32 * NS, 60 * NS)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """This host does not have it. ``remedy``: the command or setting that mends it, "" where nothing does."""

    reason: Reason
    remedy: Reason = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """It should have worked and did not. ``remedy`` as in ``Unavailable``."""

    reason: Reason
    remedy: Reason = ""


@dataclass(slots=True)
class _Record:
    status: SourceStatus = SourceStatus.UP
    reason: Reason = ""
    remedy: Reason = ""
    retry_ns: int = 0
    failures: int = 0  # in a row
    errors: int = 0  # ever
    seconds: float | None = None  # that a read took, as told …
    told_ns: int = 0  # … then

    def state(self, name: str) -> SourceState:
        message, remedy = (one if isinstance(one, Message) else None for one in (self.reason, self.remedy))
        return SourceState(
            name, self.status, str(self.reason), str(self.remedy), message, remedy, self.errors, self.seconds
        )


class Sources:
    """Asks sources and remembers how they are. Never raises; what failed is asked again after a pause."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._states: tuple[SourceState, ...] | None = None  # None: to be made anew

    def read(self, name: str, read: Callable[[], T | Unavailable | Failed], now_ns: int) -> T | None:
        """The source's value; None when it is unavailable, broken, or not to be asked again yet."""
        record = self._record(name)
        if now_ns < record.retry_ns:
            return None
        began = time.perf_counter()
        outcome: T | Unavailable | Failed
        try:
            outcome = read()
        except Exception as error:
            outcome = Failed(f"{type(error).__name__}: {error}")
        if now_ns - record.told_ns >= SECONDS_ANEW_NS:
            record.seconds, record.told_ns, self._states = round(time.perf_counter() - began, 6), now_ns, None
        self._note(record, outcome, now_ns)
        return None if isinstance(outcome, (Unavailable, Failed)) else outcome

    def record(self, name: str, outcome: object, now_ns: int) -> None:
        """Record the outcome of a source that is not read through here (the kernel's, a child's)."""
        self._note(self._record(name), outcome, now_ns)

    def _record(self, name: str) -> _Record:
        if name not in self._records:
            self._records[name], self._states = _Record(), None
        return self._records[name]

    def _note(self, record: _Record, outcome: object, now_ns: int) -> None:
        before = record.status, record.reason, record.remedy, record.errors
        self._apply(record, outcome, now_ns)
        if before != (record.status, record.reason, record.remedy, record.errors):
            self._states = None

    def _apply(self, record: _Record, outcome: object, now_ns: int) -> None:
        if isinstance(outcome, Unavailable):
            record.status, record.reason, record.remedy = SourceStatus.UNAVAILABLE, outcome.reason, outcome.remedy
            record.retry_ns, record.failures = now_ns + RETRY_UNAVAILABLE_NS, 0
        elif isinstance(outcome, Failed):
            record.status, record.reason, record.remedy = SourceStatus.ERROR, outcome.reason, outcome.remedy
            record.retry_ns = now_ns + RETRY_FAILED_NS[min(record.failures, len(RETRY_FAILED_NS) - 1)]
            record.failures += 1
            record.errors += 1
        else:
            record.status, record.reason, record.remedy = SourceStatus.UP, "", ""
            record.retry_ns = record.failures = 0

    def states(self) -> tuple[SourceState, ...]:
        """How each is; the same object while nothing changes."""
        if self._states is None:
            records = sorted(self._records.items())
            self._states = tuple(r.state(name) for name, r in records)
        return self._states
