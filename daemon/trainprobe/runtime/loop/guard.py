"""A failing part is shown and tried again; it never ends the watching and never becomes a zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trainprobe.collect.source import Failed, Sources
from trainprobe.model.sample import SourceState

Result = TypeVar("Result")
REASON_LIMIT = 300


class Guard:
    """Calls parts that may fail, each time anew, and notes in ``sources`` how they are."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._failed: set[str] = set()
        self._told: frozenset[SourceState] = frozenset()
        self._seen: tuple[SourceState, ...] = ()

    def call(self, name: str, now_ns: int, part: Callable[[], Result], otherwise: Result) -> Result:
        """What ``part`` returns; ``otherwise`` when it fails, and then the source ``name`` is in error."""
        try:
            result = part()
        except Exception as error:
            self._failed.add(name)
            self._sources.record(name, Failed(described(error)), now_ns)
            return otherwise
        if name in self._failed:
            self._failed.discard(name)
            self._sources.record(name, True, now_ns)
        return result

    def news(self) -> tuple[SourceState, ...]:
        """The states that changed since the last call."""
        states = self._sources.states()
        if states is self._seen:
            return ()
        self._seen = states
        news = tuple(state for state in states if state not in self._told)
        if news:
            self._told = frozenset(states)
        return news


def described(error: BaseException) -> str:
    """One line about an exception, for a person."""
    text = " ".join(str(error).split())
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__)[:REASON_LIMIT]
