"""One training, or all of a host, watched: kernel, targets, collectors and core put together.

``run``, ``attach`` and the daemon differ only in who tells the targets what to watch and where the reports go.
Nothing in here ends the watching: what fails is a source that is in error, with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trainprobe.collect import cost
from trainprobe.collect.source import Sources, Unavailable
from trainprobe.model.armed import Armed
from trainprobe.model.event import CallFailed, Event, ProcessEvent, ProcessEventKind, RunEnded, ThreadSample
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Report, Source
from trainprobe.model.sample import CostSample, HostSample, Inspection, RivalSample
from trainprobe.runtime.budget import Budget, Shed
from trainprobe.runtime.clock import Clock
from trainprobe.runtime.guard import Guard
from trainprobe.runtime.pace import LONGEST_NS, REGULAR_NS, Pace
from trainprobe.runtime.parts import Core, Finder, Kernel, Sampler, Stacks
from trainprobe.runtime.sampling import Samples
from trainprobe.runtime.waiting import Waiting

NOTHING: Sequence[Any] = ()
TICK_NS = NS
CALM_TICK_NS = 2 * NS  # while everything goes on as before; alarms and rare events come as ever
CALM_NS = 10 * NS
CALM_TICKS_NS = ((110 * NS, 20 * NS), (90 * NS, 10 * NS), (40 * NS, 5 * NS), (CALM_NS, CALM_TICK_NS))
"""(calm for so long, so seldom), where the kernel itself wakes us for a late step and nobody looks at our reports."""
GLANCES = 5  # at limits, in the time from a look to the next
DETAIL_NS = NS // 10
SLACK_NS = 300_000_000  # after a stall limit until it is looked at: most steps are over by then
TOGETHER_NS = 250_000_000  # alarms so shortly before another turn are looked at with it
THREADS_NS = (
    9 * NS // 10
)  # thread samples, open files and losses, while nothing is wrong: at each tick, which may be early
EACH_THREAD_NS = 2_000_000  # and the more seldom the more threads there are: of a thousand each two seconds
COST_NS = 5 * NS
SELDOM = 4  # times: the pauses between samples, over the budget
NEVER = 1 << 62
TARGETS_NS = 50_000_000  # the targets' turns are not closer than this
CALM_TARGETS_NS = NS  # nor than this while looks are far apart
STACK_NS = 20_000_000  # while a Python stack is being taken


def _urgent(event: Event) -> bool:
    """Whether the report should not wait for it: a call that failed, a victim, a death, the end of a run.

    Not a process that ends well, as those of a crowd do all the time, nor a signal, whose effect is told.
    """
    if isinstance(event, ProcessEvent):
        badly = event.code != 0 or event.signal is not None
        return event.kind is ProcessEventKind.OOM or (event.kind is ProcessEventKind.EXIT and badly)
    return isinstance(event, (CallFailed, RunEnded))


Sink = Callable[[Frame], None]
ReportSink = Callable[[Report], None]


class Observer:
    """The task of the loop: each turn makes one frame and lets the core see it."""

    def __init__(
        self,
        *,
        kernel: Kernel,
        targets: Finder,
        sampler: Sampler,
        stacks: Stacks,
        core: Core,
        sources: Sources,
        clock: Clock,
        on_frame: Sink | None = None,
        on_report: ReportSink | None = None,
        budget: Budget | None = None,
        followed: Callable[[], bool] = lambda: False,
    ) -> None:
        """``followed``: whether somebody looks at the reports now."""
        self._followed = followed
        self._budget = budget or Budget(0.0)
        self._sources = sources
        self._kernel = kernel
        self._targets = targets
        self._sampler = sampler
        self._stacks = stacks
        self._core = core
        self._clock = clock
        self._on_frame = on_frame
        self._on_report = on_report
        self._guard = Guard(sources)
        sources.note("bpf", True, 0)
        self._pace = Pace()
        self._turn_ns = self._searched_ns = 0
        self._threads_ns = 0
        self._threads_apart_ns = THREADS_NS
        self._cost_ns = 0
        self._armed: list[Armed] = []
        self._detail = self._alarmed = False
        self._tick_ns = TICK_NS
        self._glanced_ns = 0
        self._faults = False
        self._hurry = False
        self._inspect: tuple[tuple[int, int], ...] = ()
        self._crowded = False
        self._refusal = ""
        self._waiting = Waiting()
        self._lost: dict[str, int] = {}
        self._last = Moment(0, 0)

    def due_ns(self) -> int:
        """The next turn: a tick, or sooner when the core or the targets ask for it. An alarm shortly before waits."""
        duties = min(self._duties_ns(), self._search_ns(), self._glance_ns())
        if self._alarmed:
            return duties
        alarm = min((one.limit_ns + SLACK_NS for one in self._armed), default=duties)
        return alarm if alarm < duties - TOGETHER_NS else duties

    def _duties_ns(self) -> int:
        """When something is due whatever the drivers do."""
        closely = self._detail and not self._budget.sheds(Shed.DETAIL)
        due = [self._turn_ns + (DETAIL_NS if closely else self._tick_ns)]
        if self._on_report is not None and (report := self._pace.waits_ns()) is not None:
            due.append(report)
        if (sampling := self._sampler.due_ns()) is not None:
            due.append(max(sampling, self._turn_ns + DETAIL_NS))
        if self._stacks.fileno() is not None:
            due.append(self._turn_ns + STACK_NS)
        return min(due)

    def _search_ns(self) -> int:
        """When the search for trainings is due."""
        due = self._targets.due_ns()
        apart = CALM_TARGETS_NS if self._tick_ns > CALM_TICK_NS else TARGETS_NS
        return NEVER if due is None else max(due, self._turn_ns + TARGETS_NS, self._searched_ns + apart)

    def _glance_ns(self) -> int:
        """When limits are read between two looks that are far apart."""
        apart = max(CALM_TICK_NS, self._tick_ns // GLANCES)
        return self._glanced_ns + apart if self._tick_ns > CALM_TICK_NS else NEVER

    def look_sooner(self) -> None:
        """Somebody has read a report: a scrape finds what was so at the scrape before, however far apart looks are."""
        self._tick_ns = min(self._tick_ns, CALM_TICK_NS)

    def turn(self, *, woken: bool) -> None:
        now = self._clock()
        late = (woken or not self._alarmed) and self._late(now.monotonic_ns)
        found: Sequence[Event] = ()
        if not late and now.monotonic_ns < self._duties_ns():
            if not woken:
                found = self._search(now)
                if not found and self._still_far(now):
                    return
            elif self._tick_ns > TICK_NS and self._can_wait(now):
                return
        rare = self._look(now, late, found)  # a fork wakes us, too, and is nothing to hurry for
        if self._on_report is not None and self._pace.due(now.monotonic_ns, urgent=rare or self._hurry):
            self._guard.call("output", now.monotonic_ns, lambda: self._tell(now), None)

    def _can_wait(self, now: Moment) -> bool:
        """Takes in what the kernel told: whether that is but steps as ever, and something about other programs."""
        at = now.monotonic_ns
        told = self._guard.call("bpf", at, self._kernel.drain, NOTHING)
        events: Sequence[Event] = self._guard.call("targets", at, lambda: self._targets.step(now, told), ())
        return self._waiting.hold(events, at)

    def _search(self, now: Moment) -> Sequence[Event]:
        """What only the search is due for: nothing, most often, where a host starts processes all the time."""
        at = now.monotonic_ns
        if at < self._search_ns():
            return ()
        self._searched_ns = at
        return self._guard.call("targets", at, lambda: self._targets.step(now, ()), ())

    def _still_far(self, now: Moment) -> bool:
        """A glance at limits, where one is due: whether what can run out is still far from it."""
        at = now.monotonic_ns
        if at < self._glance_ns():
            return True
        self._glanced_ns = at
        self._guard.call("collectors", at, lambda: self._sampler.glance(now, self._targets.processes()), None)
        return self._sampler.far

    def finish(self) -> Report:
        """The last look (whatever is due or not), and the report of everything until then."""
        self._threads_ns = self._cost_ns = 0
        self._look(self._clock(), late=True)
        return self.report()

    def report(self) -> Report:
        """The report as of the last turn."""
        broken = Report(generated=self._last.wall_ns / NS, sources={"core": Source("error", "no report could be made")})
        return self._guard.call("core", self._last.monotonic_ns, lambda: self._core.report(self._last), broken)

    def close(self) -> None:
        """Take everything of ours out of the kernel."""
        self._sampler.count(())
        self._stacks.close()
        self._kernel.close()

    def _late(self, at: int) -> bool:
        """Whether a driver is still in the step that should be over. The others' alarms are set anew."""
        for place, one in enumerate(self._armed):
            if at < one.limit_ns + SLACK_NS:
                continue
            progress = self._guard.call("bpf", at, partial(self._kernel.progress, one.tid), None)
            later = one.after(progress) if progress is not None else None
            if later is None or later.limit_ns + SLACK_NS <= at:
                return True
            self._armed[place] = later
        return False

    def _look(self, now: Moment, late: bool, found: Sequence[Event] = ()) -> bool:
        """One frame. Whether it held something rare, which the tick may have brought before its wake-up did."""
        at = now.monotonic_ns
        events = [*self._waiting.take(), *found, *self._events(now)]
        threads = self._threads(at, late)
        samples = self._guard.call("collectors", at, self._samples(now, events), Samples())
        self._tell_gpu_users(now, samples)
        frame = Frame(
            at=now,
            events=(*events, *samples.events),
            threads=tuple(threads),
            processes=samples.processes,
            memory=samples.memory,
            counted=samples.counted,
            limits=samples.limits,
            descriptors=samples.descriptors,
            shared=samples.shared,
            spaces=samples.spaces,
            sizes=samples.sizes,
            orphans=samples.orphans,
            gpus=samples.gpus,
            host=self._with_disks(at, samples.host),
            quotas=samples.quotas,
            rivals=self._rivals(now),
            inspections=self._inspections(now),
            sources=self._guard.news(),
            cost=self._cost(at),
            events_lost=self._lost,
        )
        self._turn_ns, self._glanced_ns, self._last = at, at, now
        self._guard.call("core", at, lambda: self._judge(frame), None)
        if self._on_frame is not None:
            self._guard.call("recording", at, lambda: self._record(frame), None)
        return any(map(_urgent, events))

    def _events(self, now: Moment) -> list[Event]:
        at = now.monotonic_ns
        seen: list[Any] = list(self._guard.call("bpf", at, self._kernel.drain, NOTHING))
        if at - self._threads_ns >= self._threads_apart_ns:
            seen += self._guard.call("bpf", at, self._kernel.open_files, NOTHING)
        events: Sequence[Event] = self._guard.call("targets", at, lambda: self._targets.step(now, seen), ())
        self._tell_refusal(at)
        stack = self._guard.call("python_stack", at, lambda: self._stacks.poll(at), None)
        return [*events, stack] if stack else [*events]

    def _tell_refusal(self, at: int) -> None:
        reason = self._guard.call("targets", at, self._targets.refusal, "")
        if reason != self._refusal:
            self._refusal = reason
            told = Unavailable(reason, "exclude them (targets.exclude), or look what that user starts")
            self._sources.note("slots", told if reason else True, at)

    def _threads(self, at: int, late: bool) -> Sequence[ThreadSample]:
        due = at - self._threads_ns >= self._threads_apart_ns
        if not (late or self._detail or due):
            return ()
        if due:
            self._threads_ns = at
            self._lost = self._guard.call("bpf", at, self._kernel.lost, self._lost)
        found: Sequence[ThreadSample] = self._guard.call("bpf", at, self._kernel.threads, ())
        self._threads_apart_ns = max(THREADS_NS, len(found) * EACH_THREAD_NS - TICK_NS // 10)
        return found

    def _samples(self, now: Moment, events: Sequence[Event]) -> Callable[[], Samples]:
        return lambda: self._sampler.read(now, self._targets.processes(), events)

    def _with_disks(self, at: int, host: HostSample | None) -> HostSample | None:
        if host is None:
            return None
        return replace(host, block_io=self._guard.call("bpf", at, self._kernel.block_io, ()))

    def _tell_gpu_users(self, now: Moment, samples: Samples) -> None:
        users = {holder.pid for gpu in samples.gpus for holder in gpu.holders or ()}
        if users:
            self._guard.call("targets", now.monotonic_ns, lambda: self._targets.gpu_users(now, users), None)

    def _rivals(self, now: Moment) -> tuple[RivalSample, ...]:
        none: tuple[RivalSample, ...] = ()
        if not self._crowded:
            return none
        return self._guard.call("collectors", now.monotonic_ns, lambda: self._sampler.rivals(now), none)

    def _inspections(self, now: Moment) -> tuple[Inspection, ...]:
        asked, self._inspect = self._inspect, ()
        if not asked:
            return ()
        looks: tuple[Inspection, ...] = ()
        return self._guard.call("collectors", now.monotonic_ns, lambda: self._sampler.inspect(now, asked), looks)

    def _cost(self, at: int) -> CostSample | None:
        if at - self._cost_ns < COST_NS:
            return None
        self._cost_ns = at
        sample = self._guard.call("cost", at, lambda: cost.read(*self._kernel.cost()), None)
        if sample is not None and self._budget.feed(at, sample.cpu_seconds):
            self._spare(at)
        return sample

    def _spare(self, at: int) -> None:
        """Leave out what the budget does not allow, and say so."""
        reason = self._budget.reason
        told = Unavailable(reason, "raise budget.cpu in the configuration, or watch less (targets)")
        self._sources.note("budget", told if reason else True, at)
        self._sampler.seldom(SELDOM if self._budget.sheds(Shed.SAMPLES) else 1)
        self._pace.least_ns = LONGEST_NS if self._budget.sheds(Shed.DETAIL) else REGULAR_NS

    def _judge(self, frame: Frame) -> None:
        """Let the core see the frame, and do what it wants to be told from now on."""
        self._core.step(frame)
        at = frame.at.monotonic_ns
        wants = self._core.wants()
        self._armed = [one for one in self._core.armed() if one.limit_ns > at]  # past ones were seen in this very turn
        self._waiting.expect(self._armed)
        self._detail = self._pace.late = wants.detail
        self._slow_down(at, wants.calm_ns)
        self._hurry = wants.tell
        self._inspect = wants.inspect
        self._sampler.look_at(wants.spaces, wants.files)
        counted = () if self._budget.sheds(Shed.SAMPLES) else wants.count
        self._guard.call("instructions", at, lambda: self._sampler.count(counted), None)
        self._crowded = wants.rivals
        if wants.faults != self._faults:
            self._faults = wants.faults
            self._guard.call("page_faults", at, lambda: self._kernel.fault_tracing(wants.faults), None)
        if wants.stacks and not self._budget.sheds(Shed.STACKS):
            runs = {process.pid: process.run for process in self._targets.processes()}
            for pid, tid in wants.stacks:
                self._stacks.start(pid, tid, at, runs.get(pid, ""))

    def _slow_down(self, at: int, even_ns: int) -> None:
        """The next look may wait while all is calm, and the longer the longer that lasts. Even steps are told together
        also where a GPU or a limit is looked at each second."""
        even = even_ns >= CALM_NS
        calm = even and self._sampler.far
        alarm = partial(self._kernel.alarm, self._armed, ended=calm, together=even)
        self._alarmed = self._guard.call("bpf", at, alarm, False)
        if not calm:
            self._tick_ns = TICK_NS
        elif not self._alarmed or self._followed():
            self._tick_ns = CALM_TICK_NS
        else:
            self._tick_ns = next(pause for after, pause in CALM_TICKS_NS if even_ns >= after)

    def _record(self, frame: Frame) -> None:
        if self._on_frame is not None:
            self._on_frame(frame)

    def _tell(self, now: Moment) -> None:
        if self._on_report is not None:
            began = time.thread_time_ns()  # whoever trains takes the processor meanwhile
            self._on_report(self._core.report(now))
            self._pace.took(time.thread_time_ns() - began)
