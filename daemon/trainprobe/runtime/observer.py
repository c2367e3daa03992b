"""One training, or all of a host, watched: kernel, targets, collectors and core put together.

``run``, ``attach`` and the daemon differ only in who tells the targets what to watch and where the reports go.
Nothing in here ends the watching: what fails is a source that is in error, with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from trainprobe.bpf.probes import Probes
from trainprobe.collect import cost
from trainprobe.collect.pystack import PyStack
from trainprobe.collect.source import Reason, Sources, Unavailable
from trainprobe.model.dataclass import dataclass
from trainprobe.model.event import CallFailed, Event, ProcessEvent, ProcessEventKind, RankSeen, RunEnded, ThreadSample
from trainprobe.model.frame import Frame, FrameSamples
from trainprobe.model.message import template
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Report, Source
from trainprobe.model.sample import CostSample, HostSample, Inspection, RivalSample
from trainprobe.pipeline import Pipeline, Wants
from trainprobe.runtime.discovery.targets import Targets
from trainprobe.runtime.loop.budget import CostBudget, Shed
from trainprobe.runtime.loop.clock import Clock
from trainprobe.runtime.loop.guard import Guard
from trainprobe.runtime.sampling import unanswered
from trainprobe.runtime.sampling.deferred_events import DeferredEvents
from trainprobe.runtime.sampling.joined_rows import joined
from trainprobe.runtime.sampling.samplers import Collectors
from trainprobe.runtime.schedule import CALM_NS, LONGEST_REPORT_NS, REPORT_NS, TICK_NS, ReportSchedule, Schedule

NOTHING: Sequence[Any] = ()
SAMPLES = tuple(field.name for field in fields(FrameSamples))
NOBODY: Reason = ""
SLOTS_REMEDY = template("source.slots_remedy", "exclude them (targets.exclude), or look what that user starts")
NO_REPORT = template("source.no_report", "no report could be made")()
BUDGET_REMEDY = template("source.budget_remedy", "raise budget.cpu in the configuration, or watch less (targets)")
SELDOM = 4  # times: the pauses between samples, over the budget


def _urgent(event: Event) -> bool:
    """Whether the report should not wait for it: a new rank, a call that failed, a victim, a death, the end of a run.

    Not a process that ends well, as those of a crowd do all the time, nor a signal, whose effect is told.
    """
    if isinstance(event, ProcessEvent):
        badly = event.code != 0 or event.signal is not None
        return event.kind is ProcessEventKind.OOM or (event.kind is ProcessEventKind.EXIT and badly)
    return isinstance(event, (RankSeen, CallFailed, RunEnded))


@dataclass(frozen=True, slots=True)
class Parts:
    """What ``Observer`` is built from: one object for each of its sources, and the core."""

    kernel: Probes
    targets: Targets
    sampler: Collectors
    stacks: PyStack
    core: Pipeline
    sources: Sources
    clock: Clock


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where frames and reports go. ``followed``: whether somebody reads the reports now."""

    on_frame: Callable[[Frame], None] | None = None
    on_report: Callable[[Report], None] | None = None
    followed: Callable[[], bool] = lambda: False


class Observer:
    """The task of the loop: each turn makes one frame and lets the core see it."""

    def __init__(self, parts: Parts, outlets: Outlets, budget: CostBudget | None = None) -> None:
        self._outlets = outlets
        self.budget = budget or CostBudget(0.0)
        self._sources = parts.sources
        self._kernel = parts.kernel
        self._targets = parts.targets
        self._sampler = parts.sampler
        self._stacks = parts.stacks
        self._core = parts.core
        self._clock = parts.clock
        self._guard = Guard(parts.sources)
        parts.sources.record("bpf", True, 0)
        self._reports = ReportSchedule()
        self._schedule = Schedule()
        self._wants = Wants()
        self._noted: dict[str, object] = {}
        self._waiting = DeferredEvents()
        self._lost: dict[str, int] = {}
        self._last = Moment(0, 0)

    def due_ns(self) -> int:
        """The next turn: a tick, or sooner when the core or the targets ask for it."""
        return self._schedule.due_ns(self._duties_ns(), self._schedule.search_ns(self._targets.due_ns()))

    def _duties_ns(self) -> int:
        """When something is due whatever the drivers do."""
        return self._schedule.duties_ns(
            spared=self.budget.sheds(Shed.DETAIL),
            stack=self._stacks.fileno() is not None,
            report_ns=self._reports.waits_ns() if self._outlets.on_report is not None else None,
            limits_ns=self._sampler.due_ns(),
        )

    def look_sooner(self) -> None:
        """Somebody has read a report: a scrape finds what was so at the scrape before, however far apart looks are."""
        self._schedule.sooner()

    def turn(self, *, woken: bool) -> None:
        now = self._clock()
        asks = woken or self._schedule.early or not self._schedule.alarmed
        late = asks and self._late(now.monotonic_ns)
        found: Sequence[Event] = ()
        if not late and now.monotonic_ns < self._duties_ns():
            if not woken:
                found = self._search(now)
                if not found and self._still_far(now):
                    return
            elif self._schedule.tick_ns > TICK_NS and self._can_wait(now):
                return
        rare = self._sample_frame(now, late, found)  # a fork wakes us, too, and is nothing to hurry for
        if self._outlets.on_report is not None and self._reports.due(now.monotonic_ns, urgent=rare or self._wants.tell):
            self._guard.call("output", now.monotonic_ns, lambda: self._publish_report(now), None)

    def _can_wait(self, now: Moment) -> bool:
        """Takes in what the kernel told: whether that is but steps as ever, and something about other programs."""
        at = now.monotonic_ns
        told = self._guard.call("bpf", at, self._kernel.drain, NOTHING)
        events: Sequence[Event] = self._guard.call("targets", at, lambda: self._targets.step(now, told), ())
        return self._waiting.defer(events, at)

    def _search(self, now: Moment) -> Sequence[Event]:
        """What only the search is due for: nothing, most often, where a host starts processes all the time."""
        at = now.monotonic_ns
        if at < self._schedule.search_ns(self._targets.due_ns()):
            return ()
        self._schedule.searched_ns = at
        return self._guard.call("targets", at, lambda: self._targets.step(now, ()), ())

    def _still_far(self, now: Moment) -> bool:
        """A glance at limits, where one is due: whether what can run out is still far from it."""
        at = now.monotonic_ns
        if at < self._schedule.glance_ns():
            return True
        self._schedule.glanced_ns = at
        self._guard.call("collectors", at, lambda: self._sampler.read_limits(now, self._targets.processes()), None)
        return self._sampler.far

    def finish(self) -> Report:
        """The last look (whatever is due or not), and the report of everything until then."""
        self._schedule.read_all()
        self._sample_frame(self._clock(), late=True)
        return self.report()

    def report(self) -> Report:
        last = self._last
        broken = Report(
            generated=last.wall_ns / NS,
            generated_monotonic=last.monotonic_ns / NS,
            sources={"core": Source.of("error", NO_REPORT)},
        )
        return self._guard.call("core", last.monotonic_ns, lambda: self._core.report(last), broken)

    def close(self) -> None:
        self._sampler.count(())
        self._stacks.close()
        self._kernel.close()

    def _late(self, at: int) -> bool:
        """Whether a driver is still in the step that should be over."""
        return self._schedule.is_late(
            at, lambda tid: self._guard.call("bpf", at, lambda: self._kernel.progress(tid), None)
        )

    def _sample_frame(self, now: Moment, late: bool, found: Sequence[Event] = ()) -> bool:
        """One frame. Whether it held something rare, which the tick may have brought before its wake-up did."""
        at = now.monotonic_ns
        events = [*self._waiting.drain(), *found, *self._events(now)]
        if self._schedule.far_apart:
            tids = {one.tid for one in self._schedule.armed if not one.compared}
            events = self._guard.call("core", at, partial(joined, events, tids), events)
        threads = self._threads(at, late)
        nothing: tuple[FrameSamples, Sequence[Event]] = FrameSamples(), ()
        samples, logged = self._guard.call("collectors", at, lambda: self._samples(now, events), nothing)
        if users := {holder.pid for gpu in samples.gpus for holder in gpu.holders or ()}:
            self._guard.call("targets", at, lambda: self._targets.gpu_users(now, users), None)
        frame = Frame(
            now,
            (*events, *logged),
            tuple(threads),
            self._rivals(now),
            self._inspections(now),
            self._guard.news(),
            self._cost(at),
            self._lost,
            **{name: getattr(samples, name) for name in SAMPLES} | {"host": self._with_disks(at, samples.host)},
        )
        self._schedule.turn_ns = self._schedule.glanced_ns = at
        self._last = now
        self._guard.call("core", at, lambda: self._judge(frame), None)
        if self._outlets.on_frame is not None:
            self._guard.call("recording", at, partial(self._outlets.on_frame, frame), None)
        return any(map(_urgent, events))

    def _events(self, now: Moment) -> list[Event]:
        at = now.monotonic_ns
        seen: list[Any] = list(self._guard.call("bpf", at, self._kernel.drain, NOTHING))
        if self._schedule.threads_due(at):
            seen += self._guard.call("bpf", at, self._kernel.open_files, NOTHING)
        events: Sequence[Event] = self._guard.call("targets", at, lambda: self._targets.step(now, seen), ())
        reason = self._guard.call("targets", at, self._targets.refusal, NOBODY)
        reason = reason or self._guard.call("bpf", at, self._kernel.refusal, NOBODY)
        self._note("slots", Unavailable(reason, SLOTS_REMEDY()) if reason else True, at)
        silent: Sequence[int] = self._guard.call("targets", at, self._targets.hanging, NOTHING)
        abandoned: Sequence[tuple[int, int, int]] = self._guard.call("targets", at, self._targets.abandoned, NOTHING)
        died: Sequence[int] = self._guard.call("targets", at, self._targets.died, NOTHING)
        self._note("processes", unanswered.processes(silent, abandoned, died), at)
        hung: Sequence[tuple[int, int]] = self._guard.call("bpf", at, self._kernel.hung, NOTHING)
        self._note("libraries", unanswered.libraries(hung), at)
        stack = self._guard.call("python_stack", at, lambda: self._stacks.poll(at), None)
        self._note("python_stack", self._stacks.trouble(at) or True, at)
        return [*events, stack] if stack else [*events]

    def _note(self, source: str, outcome: object, at: int) -> None:
        """Record the outcome of a source where it changes; a source that was up from the start is not listed."""
        if outcome != self._noted.get(source, True):
            self._noted[source] = outcome
            self._sources.record(source, outcome, at)

    def _threads(self, at: int, late: bool) -> Sequence[ThreadSample]:
        due = self._schedule.threads_due(at)
        if not (late or self._wants.detail or due):
            return ()
        if due:
            self._lost = self._guard.call("bpf", at, self._kernel.lost, self._lost)
        found: Sequence[ThreadSample] = self._guard.call("bpf", at, self._kernel.threads, ())
        self._schedule.threads_read(at if due else self._schedule.threads_ns, len(found))
        return found

    def _samples(self, now: Moment, events: Sequence[Event]) -> tuple[FrameSamples, Sequence[Event]]:
        return self._sampler.read(now, self._targets.processes(), events), self._sampler.logged(now)

    def _with_disks(self, at: int, host: HostSample | None) -> HostSample | None:
        if host is None:
            return None
        return replace(host, block_io=self._guard.call("bpf", at, self._kernel.block_io, ()))

    def _rivals(self, now: Moment) -> tuple[RivalSample, ...]:
        none: tuple[RivalSample, ...] = ()
        if not self._wants.rivals:
            return none
        return self._guard.call("collectors", now.monotonic_ns, lambda: self._sampler.rivals(now), none)

    def _inspections(self, now: Moment) -> tuple[Inspection, ...]:
        asked = self._wants.inspect
        if not asked:
            return ()
        looks: tuple[Inspection, ...] = ()
        return self._guard.call("collectors", now.monotonic_ns, lambda: self._sampler.inspect(now, asked), looks)

    def _cost(self, at: int) -> CostSample | None:
        if not self._schedule.cost_due(at):
            return None
        helpers, stacks = self._targets.seconds, self._stacks.cpu_seconds
        sample = self._guard.call(
            "cost", at, lambda: cost.read(*self._kernel.cost(), helpers=helpers(), stacks=stacks), None
        )
        if sample is not None and self.budget.add_cpu_seconds(at, sample.cpu_seconds):
            self._spare(at)
        return sample

    def _spare(self, at: int) -> None:
        """Leave out what the budget does not allow, and say so."""
        reason = self.budget.reason
        self._sources.record("budget", Unavailable(reason, BUDGET_REMEDY()) if reason else True, at)
        self._sampler.lengthen_pauses(SELDOM if self.budget.sheds(Shed.SAMPLES) else 1)
        self._reports.least_ns = LONGEST_REPORT_NS if self.budget.sheds(Shed.DETAIL) else REPORT_NS

    def _judge(self, frame: Frame) -> None:
        """Let the core see the frame, and do what it wants to be told from now on."""
        self._core.step(frame)
        at = frame.at.monotonic_ns
        before, self._wants = self._wants, self._core.wants()
        wants, schedule = self._wants, self._schedule
        schedule.armed = [one for one in self._core.armed() if one.limit_ns > at]  # past ones were seen in this turn
        if self.budget.sheds(Shed.STACKS):
            schedule.armed = [replace(one, early=False) for one in schedule.armed]
        self._waiting.expect(schedule.armed)
        self._reports.late = wants.detail
        schedule.note_late(at, late=wants.detail)
        self._calm_down(at, wants.stable_ns)
        self._sampler.look_at(wants.spaces, wants.files)
        counted = () if self.budget.sheds(Shed.SAMPLES) else wants.count
        self._guard.call("instructions", at, lambda: self._sampler.count(counted), None)
        if wants.faults != before.faults:
            self._guard.call("page_faults", at, lambda: self._kernel.fault_tracing(wants.faults), None)
        if wants.looks != before.looks:
            self._guard.call("bpf", at, lambda: self._kernel.look_tracing(wants.looks), None)
        if wants.stacks and not self.budget.sheds(Shed.STACKS):
            runs = {process.pid: process.run for process in self._targets.processes()}
            for pid, tid in self._stacks.in_turn(wants.stacks):
                self._stacks.start(pid, tid, at, runs.get(pid, ""))

    def _calm_down(self, at: int, even_ns: int) -> None:
        """The next pass may wait while all is calm. Even steps share rows also where a GPU or a limit is read each
        second."""
        even = even_ns >= CALM_NS
        calm = even and self._sampler.far
        alarm = partial(self._kernel.alarm, self._schedule.armed, ended=calm, together=even)
        self._schedule.alarmed = self._guard.call("bpf", at, alarm, False)
        self._schedule.calm_down(even_ns, calm=calm, followed=self._outlets.followed())

    def _publish_report(self, now: Moment) -> None:
        if self._outlets.on_report is not None:
            began = time.thread_time_ns()  # whoever trains takes the processor meanwhile
            self._outlets.on_report(self._core.report(now, reuse=True))
            self._reports.took(time.thread_time_ns() - began)
