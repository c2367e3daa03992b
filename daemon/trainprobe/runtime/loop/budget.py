"""What the daemon may cost, and what it leaves out when it costs more, in the order of ``SHED``. Pure.

The processor time of the last minute decides. One thing more is left out, or taken up again below half the budget,
at most twice a minute, so that what was left out has time to show.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from enum import IntEnum

from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS

WINDOW_NS = 60 * NS
PAUSE_NS = 30 * NS
RECOVERED = 0.5  # of the budget


class Shed(IntEnum):
    """What is left out at this level and at those above it."""

    STACKS = 1
    SAMPLES = 2
    DETAIL = 3


SHED = {
    Shed.STACKS: template("source.shed_stacks", "Python stacks"),
    Shed.SAMPLES: template("source.shed_samples", "three of four samples of processes, limits and the host"),
    Shed.DETAIL: template("source.shed_detail", "ten looks a second at late steps, and reports each second"),
}
OVER = template(
    "source.over_budget",
    "the daemon used {used:.1%} of a processor, more than its budget of {share:.1%}: without {out:; }",
)


@dataclass(slots=True)
class CostBudget:
    """``share``: of one processor; 0: no limit."""

    share: float
    level: int = 0
    exceeded: float = 0.0  # what the last minute that was above it took, of one processor
    _seen: deque[tuple[int, float]] = field(default_factory=deque)
    _changed_ns: int = 0

    def add_cpu_seconds(self, at_ns: int, cpu_seconds: float) -> bool:
        """The processor time so far, ours and our children's; whether the level changed."""
        self._seen.append((at_ns, cpu_seconds))
        while len(self._seen) > 1 and at_ns - self._seen[1][0] >= WINDOW_NS:
            self._seen.popleft()
        begin_ns, before = self._seen[0]
        if not self.share or at_ns - begin_ns < (PAUSE_NS if self._changed_ns else WINDOW_NS):
            return False  # finding what runs already takes a second of a processor, once
        used = (cpu_seconds - before) / ((at_ns - begin_ns) / NS)
        if at_ns - self._changed_ns < PAUSE_NS:
            return False
        level = self.level
        if used > self.share:
            level = min(level + 1, Shed.DETAIL)
            self.exceeded = used
        elif used < RECOVERED * self.share:
            level = max(level - 1, 0)
        if level == self.level:
            return False
        self.level, self._changed_ns = level, at_ns
        self._seen = deque([(at_ns, cpu_seconds)])  # what was before says nothing about what is left
        return True

    def sheds(self, what: Shed) -> bool:
        return self.level >= what

    @property
    def reason(self) -> Message | None:
        """What is left out and why; None while nothing is."""
        if not self.level:
            return None
        out = [text() for level, text in SHED.items() if level <= self.level]
        return OVER(used=self.exceeded, share=self.share, out=out)
