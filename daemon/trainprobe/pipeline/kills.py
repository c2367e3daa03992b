"""Processes of a run that were killed for want of memory, and by whose limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace

from trainprobe.causes.limits.oom_kill import holders
from trainprobe.causes.situation import Victim, used_share
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import OomLogged, ProcessEvent
from trainprobe.model.moment import NS
from trainprobe.model.sample import MemorySample, ProcessSample
from trainprobe.pipeline.supplies import Supplies

FULL = 0.9
VICTIMS = 64
"""Of a run, the latest: each is judged anew with the others."""
LINES = UNNAMED = 1024
"""Kills of all the host by the kernel log; further victims of a run whose limit is not known yet. A container may be
killed as a whole (memory.oom.group)."""
SAME_KILL_NS = 60 * NS


@dataclass(slots=True)
class Kills:
    """The victims; the kernel log may name a kill's limit before the victim is known, or after."""

    victims: list[Victim] = field(default_factory=list)
    count: int = 0  # of victims, those kept no longer too
    _gone: Counter[str] = field(default_factory=Counter)  # of those, by scope
    _unnamed: dict[int, int] = field(default_factory=dict)  # of those without one, by pid: when
    _lines: dict[int, OomLogged] = field(default_factory=dict)  # the latest by pid

    def add_victim(self, event: ProcessEvent, held: Sequence[ProcessSample], supplies: Supplies) -> None:
        """A kill; ``held``: the processes of its rank."""
        self.count += 1
        self.victims.append(Victim(event, None, "", None, holders(held)))
        line = self._lines.get(event.pid)
        if line is not None and _is_same(event.at_ns, line):
            self._name_limit(line, supplies)
        for gone in self.victims[:-VICTIMS]:
            if gone.scope:
                self._gone[gone.scope] += 1
            else:
                self._unnamed[gone.event.pid] = gone.event.at_ns
        del self.victims[:-VICTIMS]
        if len(self._unnamed) > UNNAMED:
            del self._unnamed[next(iter(self._unnamed))]

    def add_line(self, line: OomLogged, supplies: Supplies) -> bool:
        """A kill on this host by the kernel log; returns whether its victim is known."""
        self._lines.pop(line.pid, None)
        self._lines[line.pid] = line
        if len(self._lines) > LINES:
            del self._lines[next(iter(self._lines))]
        killed_ns = self._unnamed.get(line.pid)
        if killed_ns is not None and _is_same(killed_ns, line):
            del self._unnamed[line.pid]
            self._gone[line.scope] += 1
        return self._name_limit(line, supplies)

    def _name_limit(self, line: OomLogged, supplies: Supplies) -> bool:
        named = False
        for index, victim in enumerate(self.victims):
            if victim.event.pid == line.pid and victim.scope is None:
                limit = supplies.memory_of(line.scope, line.group)
                self.victims[index] = replace(victim, scope=line.scope, group=line.group, limit=limit)
                named = True
        return named

    def settle(self, supplies: Supplies) -> None:
        """Without the kernel log: the limit that was all but reached."""
        full = [sample for sample in supplies.memory() if used_share(sample) >= FULL]
        nearest = min(full, key=lambda s: s.limit - s.used, default=None)
        if nearest is None:
            return
        for index, victim in enumerate(self.victims):
            if victim.scope is None:
                self.victims[index] = replace(victim, scope=nearest.scope, limit=nearest)
        self._gone[nearest.scope] += len(self._unnamed)
        self._unnamed.clear()

    def by_scope(self) -> dict[str, int]:
        """Victims by whose limit it was, as far as that is known."""
        return dict(self._gone + Counter(victim.scope for victim in self.victims if victim.scope))

    def reached(self, run: str) -> MemorySample | None:
        """The limit of memory that the latest victim was killed for: no other one was nearer."""
        hit = next((victim.limit for victim in reversed(self.victims) if victim.scope and victim.limit), None)
        return MemorySample(run, hit.used, hit.limit, hit.scope) if hit is not None else None


def _is_same(killed_ns: int, line: OomLogged) -> bool:
    """Whether the line tells of a kill of its pid at that time, and not of a later process's."""
    return abs(killed_ns - line.at_ns) <= SAME_KILL_NS
