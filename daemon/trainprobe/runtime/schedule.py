"""When the observer samples, searches and reads limits. Times are CLOCK_MONOTONIC in ns and come in as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainprobe.model.armed import Armed, Progress
from trainprobe.model.moment import NS

TICK_NS = NS
CALM_TICK_NS = 2 * NS  # while all steps are even; alarms and rare events wake the observer as ever
CALM_NS = 10 * NS
CALM_TICKS_NS = ((110 * NS, 20 * NS), (90 * NS, 10 * NS), (40 * NS, 5 * NS), (CALM_NS, CALM_TICK_NS))
"""(even for so long, pause), where the kernel itself wakes for a late step and nobody reads the reports."""
GLANCES = 5  # at limits, between two sampling passes
DETAIL_NS = NS // 10
SLACK_NS = 300_000_000  # from a stall limit to the pass that looks at it: most steps are over by then
TOGETHER_NS = 250_000_000  # an alarm so shortly before another duty waits for it
THREADS_NS = 9 * NS // 10  # between thread samples while nothing is wrong: at each tick, which may be early
EACH_THREAD_NS = 2_000_000  # and longer with more threads: for a thousand two seconds
COST_NS = 5 * NS
NEVER = 1 << 62
TARGETS_NS = 50_000_000  # between two searches, at least
CALM_TARGETS_NS = NS  # the same while passes are far apart
STACK_NS = 20_000_000  # while a Python stack is being taken


@dataclass(slots=True)
class Schedule:
    """What was done last, and so what is due next."""

    turn_ns: int = 0
    tick_ns: int = TICK_NS
    searched_ns: int = 0
    glanced_ns: int = 0
    threads_ns: int = 0
    threads_apart_ns: int = THREADS_NS
    cost_ns: int = 0
    alarmed: bool = False  # the kernel itself wakes for late steps
    armed: list[Armed] = field(default_factory=list)

    def due_ns(self, duties_ns: int, search_ns: int) -> int:
        """The next pass: a duty, or the alarm of a driver. An alarm shortly before a duty waits for that."""
        duties = min(duties_ns, search_ns, self.glance_ns())
        if self.alarmed:
            return duties
        alarm = min((one.limit_ns + SLACK_NS for one in self.armed), default=duties)
        return alarm if alarm < duties - TOGETHER_NS else duties

    def search_ns(self, wanted_ns: int | None) -> int:
        """When the search for trainings is due, which asks for a turn at ``wanted_ns``."""
        apart = CALM_TARGETS_NS if self.tick_ns > CALM_TICK_NS else TARGETS_NS
        return NEVER if wanted_ns is None else max(wanted_ns, self.turn_ns + TARGETS_NS, self.searched_ns + apart)

    def glance_ns(self) -> int:
        """When limits are read between two passes that are far apart."""
        apart = max(CALM_TICK_NS, self.tick_ns // GLANCES)
        return self.glanced_ns + apart if self.tick_ns > CALM_TICK_NS else NEVER

    def is_late(self, at: int, progress: Callable[[int], Progress | None]) -> bool:
        """Whether a driver is still in the step that should be over. The others' alarms are set anew."""
        for place, one in enumerate(self.armed):
            if at < one.limit_ns + SLACK_NS:
                continue
            seen = progress(one.tid)
            later = one.after(seen) if seen is not None else None
            if later is None or later.limit_ns + SLACK_NS <= at:
                return True
            self.armed[place] = later
        return False

    def threads_due(self, at: int) -> bool:
        """Whether threads, open files and losses are to be read."""
        return at - self.threads_ns >= self.threads_apart_ns

    def threads_read(self, at: int, number: int) -> None:
        """So many were read."""
        self.threads_ns = at
        self.threads_apart_ns = max(THREADS_NS, number * EACH_THREAD_NS - TICK_NS // 10)

    def cost_due(self, at: int) -> bool:
        """Whether the daemon's own cost is to be read; it then is."""
        due = at - self.cost_ns >= COST_NS
        if due:
            self.cost_ns = at
        return due

    def read_all(self) -> None:
        """The next pass is the last one: everything is due."""
        self.threads_ns = self.cost_ns = 0

    def sooner(self) -> None:
        """Somebody has read a report: passes come at the pace of calm, however even the steps are."""
        self.tick_ns = min(self.tick_ns, CALM_TICK_NS)

    def calm_down(self, even_ns: int, *, calm: bool, followed: bool) -> None:
        """Steps have been even for ``even_ns``; ``calm``: no limit is near either; ``followed``: a report is read."""
        if not calm:
            self.tick_ns = TICK_NS
        elif not self.alarmed or followed:
            self.tick_ns = CALM_TICK_NS
        else:
            self.tick_ns = next(pause for after, pause in CALM_TICKS_NS if even_ns >= after)
