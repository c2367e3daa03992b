"""Processes of a run that were killed for want of memory, and by whose limit."""

from __future__ import annotations

from collections import Counter, deque
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
LINES = 64  # kills of all the host
VICTIMS = 64
"""Of a run, the latest: each is judged anew with the others."""
SAME_KILL_NS = 60 * NS


@dataclass(slots=True)
class Kills:
    """The victims; the kernel log may name a kill's limit before the victim is known, or after."""

    victims: list[Victim] = field(default_factory=list)
    count: int = 0  # of victims, those kept no longer too
    _gone: Counter[str] = field(default_factory=Counter)  # of those, by scope
    _lines: deque[OomLogged] = field(default_factory=lambda: deque(maxlen=LINES))

    def add_victim(self, event: ProcessEvent, held: Sequence[ProcessSample], supplies: Supplies) -> None:
        """A kill; ``held``: the processes of its rank."""
        self.count += 1
        self.victims.append(Victim(event, None, "", None, holders(held)))
        self._gone.update(gone.scope for gone in self.victims[:-VICTIMS] if gone.scope)
        del self.victims[:-VICTIMS]
        for line in self._lines:
            if line.pid == event.pid and abs(event.at_ns - line.at_ns) <= SAME_KILL_NS:
                self._name_limit(line, supplies)

    def add_line(self, line: OomLogged, supplies: Supplies) -> bool:
        """A kill on this host by the kernel log; returns whether its victim is known."""
        self._lines.append(line)
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
        for index, victim in enumerate(self.victims):
            if victim.scope is None:
                full = [sample for sample in supplies.memory() if used_share(sample) >= FULL]
                nearest = min(full, key=lambda s: s.limit - s.used, default=None)
                if nearest is not None:
                    self.victims[index] = replace(victim, scope=nearest.scope, limit=nearest)

    def by_scope(self) -> dict[str, int]:
        """Victims by whose limit it was, as far as that is known."""
        return dict(self._gone + Counter(victim.scope for victim in self.victims if victim.scope))

    def reached(self, run: str) -> MemorySample | None:
        """The limit of memory that the latest victim was killed for: no other one was nearer."""
        hit = next((victim.limit for victim in reversed(self.victims) if victim.scope and victim.limit), None)
        return MemorySample(run, hit.used, hit.limit, hit.scope) if hit is not None else None
