"""When the observer samples, searches, reads limits and reports. Times are CLOCK_MONOTONIC in ns and come in as data.

The states are a table in docs/architecture.md ("When it looks"). Between two searches for trainings are 0.05 s, and 1 s
where passes are more than 2 s apart. An alarm less than 0.25 s before another duty waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from trainprobe.derive.rate_limiter import RateLimiter
from trainprobe.model.dataclass import dataclass
from trainprobe.model.moment import NS
from trainprobe.model.step_deadline import Armed, DriverProgress

TICK_NS = NS
CALM_TICK_NS = 2 * NS  # while all steps are even; alarms and rare events wake the observer as ever
CALM_NS = 10 * NS
CALM_TICKS_NS = ((110 * NS, 31 * NS), (90 * NS, 10 * NS), (40 * NS, 5 * NS), (CALM_NS, CALM_TICK_NS))
"""(even for so long, pause), where the kernel itself wakes for a late step and nobody reads the reports. No multiple of
the longest is the time from one scrape to the next, mostly: in step with the passes, one would find the same report as
the one before, and the next one two more."""
GLANCES = 4  # at limits, for each sampling pass: of what fills in 15 s there is time to warn
DETAIL_NS = NS // 10
FIRST_LOOKS_NS = 3 * DETAIL_NS  # late steps are looked at so often for so long whatever it costs: they may be stalls,
FIRST_LOOKS_APART_NS = 2 * NS  # and again after this
SLACK_NS = 300_000_000  # from a stall limit to the pass that looks at it: most steps are over by then
EARLY_SLACK_NS = 1_000_000  # the same where bursts are over sooner, again and again, and no stack shows what they do
TOGETHER_NS = 250_000_000  # an alarm so shortly before another duty waits for it
THREADS_NS = 9 * NS // 10  # between thread samples while nothing is wrong: at each tick, which may be early
EACH_THREAD_NS = 2_000_000  # and longer with more threads: for a thousand two seconds
COST_NS = 5 * NS
NEVER = 1 << 62
TARGETS_NS = 50_000_000  # between two searches, at least
CALM_TARGETS_NS = NS  # the same while passes are far apart
STACK_NS = 20_000_000  # while a Python stack is being taken

REPORT_NS, LONGEST_REPORT_NS = NS, 5 * NS
SHARE = 0.0004  # of a processor for the regular reports: one of many runs comes less often
LATE_SHARE = 0.005  # the same while a step is late: somebody may be looking at it
QUICK = 3  # reports follow at once when there were none for a while …
SPREAD_NS = 143_000_000  # … and each of these gives room for another: 3 + 7 in any second at most
URGENT_SHARE = 0.1  # of a processor for the urgent ones: those of hundreds of processes are spread wider,
WIDEST_NS = NS // 2  # up to this

LIMITS_NS = NS
FAR_LIMITS_NS = 2 * NS  # while less than half of everything is used, and will be
EARLY_NS = NS // 4  # turns come about once a second: what is due so soon is read in this one
SOON_SECONDS = 60.0  # growth that reaches a limit in so long is followed from its beginning: a forecast needs points
HASTE_SECONDS = 20.0  # and in so long, more closely: turns are taken for it
HASTE_NS = NS // 4
HASTE_LASTS_NS, HASTE_RESTS_NS = 30 * NS, 60 * NS  # what goes up and down all the time is not worth it


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
    late: bool = False  # a step is
    looks_ns: int = -FIRST_LOOKS_APART_NS  # when first looks began
    armed: list[Armed] = field(default_factory=list)

    def duties_ns(self, *, spared: bool, stack: bool, report_ns: int | None, limits_ns: int | None) -> int:
        """When something is due whatever the drivers do. ``spared``: only the first looks at a late step are close;
        ``stack``: one is being taken."""
        closely = self.late and not (spared and self.turn_ns - self.looks_ns >= FIRST_LOOKS_NS)
        due = [self.turn_ns + (DETAIL_NS if closely else self.tick_ns)]
        if report_ns is not None:
            due.append(report_ns)
        if limits_ns is not None:
            due.append(max(limits_ns, self.turn_ns + DETAIL_NS))
        if stack:
            due.append(self.turn_ns + STACK_NS)
        return min(due)

    def due_ns(self, duties_ns: int, search_ns: int) -> int:
        """The next pass: a duty, or the alarm of a driver. An alarm shortly before a duty waits for that."""
        duties = min(duties_ns, search_ns, self.glance_ns())
        asked = [one for one in self.armed if one.early] if self.alarmed else self.armed
        alarm = min(map(_alarm_ns, asked), default=duties)
        if any(one.early for one in asked):
            return min(alarm, duties)
        return alarm if alarm < duties - TOGETHER_NS else duties

    def note_late(self, at: int, *, late: bool) -> None:
        self.late = late
        if late and at - self.looks_ns >= FIRST_LOOKS_APART_NS:
            self.looks_ns = at

    @property
    def early(self) -> bool:
        """Whether a driver's next late step is looked at before the kernel wakes for it."""
        return any(one.early for one in self.armed)

    @property
    def far_apart(self) -> bool:
        """Whether passes are further apart than calm alone brings about."""
        return self.tick_ns > CALM_TICK_NS

    def search_ns(self, wanted_ns: int | None) -> int:
        """When the search for trainings is due, which asks for a turn at ``wanted_ns``."""
        apart = CALM_TARGETS_NS if self.far_apart else TARGETS_NS
        return NEVER if wanted_ns is None else max(wanted_ns, self.turn_ns + TARGETS_NS, self.searched_ns + apart)

    def glance_ns(self) -> int:
        """When limits are read between two passes that are far apart."""
        apart = max(CALM_TICK_NS, self.tick_ns // GLANCES)
        return self.glanced_ns + apart if self.far_apart else NEVER

    def is_late(self, at: int, progress: Callable[[int], DriverProgress | None]) -> bool:
        """Whether a driver is still in the step that should be over. The others' alarms are set anew."""
        for place, one in enumerate(self.armed):
            if at < _alarm_ns(one):
                continue
            seen = progress(one.tid)
            later = one.after(seen) if seen is not None else None
            if later is None or _alarm_ns(later) <= at:
                return True
            self.armed[place] = later
        return False

    def threads_due(self, at: int) -> bool:
        """Whether threads, open files and losses are to be read."""
        return at - self.threads_ns >= self.threads_apart_ns

    def threads_read(self, at: int, number: int) -> None:
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


def _alarm_ns(one: Armed) -> int:
    return one.limit_ns + (EARLY_SLACK_NS if one.early else SLACK_NS)


class ReportSchedule:
    """When a report is made: at once where something rare happens, never more than ten times a second."""

    def __init__(self) -> None:
        self._last_ns: int | None = None
        self._allowance = RateLimiter(QUICK, SPREAD_NS)
        self._pending = False
        self._regular_ns = self._late_ns = REPORT_NS
        self._spent_ns = NEVER
        self.late = False
        """Whether a step is late."""
        self.least_ns = REPORT_NS
        """Between two regular ones, however little they cost."""

    def waits_ns(self) -> int | None:
        """When one should be made that had to wait, or one while a step is late; None: it is made with some turn."""
        if self._last_ns is None:
            return 0
        return self.due_ns() if self._pending or self.late else None

    def due_ns(self) -> int:
        if self._last_ns is None:
            return 0
        regular = self._last_ns + (self._late_ns if self.late else self._regular_ns)
        return min(regular, self._allowance.next_ns()) if self._pending else regular

    def due(self, now_ns: int, *, urgent: bool) -> bool:
        """Whether to make one now, which is noted as made."""
        self._pending = self._pending or urgent
        if now_ns < self.due_ns():
            return False
        self._pending = False
        self._last_ns = now_ns
        self._allowance.count_one(now_ns)
        return True

    def took(self, spent_ns: int) -> None:
        """The last one took so long. For regular ones the lesser of two counts: some take twice as long."""
        usual_ns, self._spent_ns = min(spent_ns, self._spent_ns), spent_ns
        self._regular_ns, self._late_ns = (
            min(max(self.least_ns, round(usual_ns / share)), LONGEST_REPORT_NS) for share in (SHARE, LATE_SHARE)
        )
        self._allowance.spread_ns = min(max(SPREAD_NS, round(spent_ns / URGENT_SHARE)), WIDEST_NS)


@dataclass(slots=True)
class LimitSchedule:
    """When limits are read. ``times``: regular pauses are so many times as long."""

    times: int = 1
    near: bool = False  # memory is all but used up, or on its way to be
    far: bool = True  # no limit is half used, nor will be soon
    hasty: bool = False  # something fills within seconds
    _due_ns: int = 0
    _hasty_until_ns: int = -HASTE_RESTS_NS

    def wanted_ns(self) -> int | None:
        """When limits want a turn of their own; None: they wait for the next one."""
        return self._due_ns if self.hasty else None

    def due(self, at: int) -> bool:
        return at >= self._due_ns

    def compared_ns(self) -> int:
        """So long after two readings were compared the next ones are."""
        return (FAR_LIMITS_NS if self.hasty else LIMITS_NS) - EARLY_NS

    def judge(self, at: int, seconds_left: float, *, near: bool, little_used: bool) -> None:
        """Readings were compared. Haste does not last: what fills and empties again and again is left to itself."""
        self.near = near
        self.far = seconds_left > SOON_SECONDS and little_used
        wanted = seconds_left < HASTE_SECONDS and (near or self.times == 1)
        if wanted and at >= self._hasty_until_ns + HASTE_RESTS_NS:
            self._hasty_until_ns = at + HASTE_LASTS_NS
        self.hasty = wanted and at < self._hasty_until_ns

    def was_read(self, at: int) -> None:
        pause = (FAR_LIMITS_NS if self.far else LIMITS_NS) * (1 if self.near else self.times)
        self._due_ns = at + (HASTE_NS if self.hasty else pause - EARLY_NS)
