"""All trainings of a host, watched, published and kept, until a signal ends it: the daemon's work.

A module of its own, for it imports nearly everything, and the daemon has the programs compiled meanwhile.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

from trainprobe.bpf.load.loader import Compiling
from trainprobe.cli import FAILED, Refusal, complain, compose, compose_core, configuration, outputs, published, tell
from trainprobe.collect.procfs import Proc
from trainprobe.config.parse import ConfigError
from trainprobe.config.schema import DaemonConfig
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Report, Source
from trainprobe.runtime import garbage_collection, resume
from trainprobe.runtime.discovery.watch_locks import WatchLocks, parents
from trainprobe.runtime.history.keeper import HistoryKeeper
from trainprobe.runtime.loop import allocator, clock
from trainprobe.runtime.loop.event_loop import Loop
from trainprobe.runtime.loop.notify import Notifier
from trainprobe.runtime.loop.signals import Signals
from trainprobe.runtime.observer import Observer, Outlets
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.privacy import withheld
from trainprobe.runtime.publishing.publish import Publisher, uid_of
from trainprobe.runtime.publishing.recorder import Recorder, to_file
from trainprobe.runtime.sampling.report_readers import Readers
from trainprobe.store.schema import NewerSchemaError
from trainprobe.text.saying import saying, word
from trainprobe.wire.codec import WireError

GIVE_BACK_NS = 60 * NS
AT_START = ("record", "python_stack", "targets")
"""Keys of the configuration that are read at the start only."""


def watch(path: Path | None, config: DaemonConfig, directory: Path, state: Path, compiling: Compiling) -> None:
    """Until a signal comes. Raises Refusal and ProbesUnavailable."""
    allocator.limit_arenas()
    readers = Readers()
    publisher = Publisher(directory, complain, readers.follow)
    try:
        publisher.open()
    except rundir.AlreadyRunningError as error:
        raise Refusal(FAILED, error.as_saying) from None
    except OSError as error:
        raise Refusal(FAILED, outputs.reason(error)) from None
    try:
        history = HistoryKeeper(state, config.retention, complain=complain, uid_of=uid_of)
        try:
            HostWatch(path, config, publisher, readers, history, compiling).run()
        finally:
            history.close()
    except NewerSchemaError as error:
        reason = saying(
            "{path} has schema {found}, this version knows up to {known}",
            path=error.path, found=error.found, known=error.known,
        )  # fmt: skip
        remedy = saying("install the version that wrote it, or put it aside: {command}", command=error.aside)
        raise Refusal(FAILED, reason, remedy) from None
    except OSError as error:
        raise Refusal(FAILED, outputs.reason(error)) from None
    finally:
        publisher.close()
        readers.close()


def _published(directory: Path) -> Report | None:
    """What an earlier process published last: all that it told is in there, though it may have been killed."""
    try:
        return published.decoded(directory / "report.json")
    except (OSError, WireError):
        return None


class HostWatch:
    """The observer's turns, the watchdog's, and what signals ask for."""

    def __init__(
        self,
        path: Path | None,
        config: DaemonConfig,
        publisher: Publisher,
        readers: Readers,
        history: HistoryKeeper,
        compiling: Compiling,
    ) -> None:
        found = history.open(_published(publisher.directory))
        self._path = path
        self._config = config
        self._publisher = publisher
        self._readers = readers
        self._history = history
        self._notifier = Notifier.of_environment()
        self._signals = Signals((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        self._loop = Loop()
        self._heap = allocator.Heap()
        self._listens = False
        self._watchdog_ns = self._give_back_ns = 0
        self._close_record: Callable[[], object] = lambda: None
        proc = Proc(owners=publisher.answers)
        claims = WatchLocks(parents(proc), publisher.directory)
        outlets = Outlets(self._recorder(), self._publish, lambda: self._readers.follows(clock.now().monotonic_ns))
        auto = config.targets.auto
        self._made = compose.assemble(config, outlets, auto=auto, claims=claims, compiling=compiling, proc=proc)
        self._observer: Observer = self._made.observer
        self._told: Report | None = None
        self._noted = resume.ResumeStates(self._made.core, proc)
        self._made.targets.attempted(found.attempts)
        self._made.targets.remember(found.jobs)
        self._made.targets.go_on(resume.found_again(found.live, found.kept, clock.now(), proc))

    def run(self) -> None:
        try:
            self._loop.on_wake(self._made.probes.fileno())
            self._loop.on_readable(self._signals.fileno(), self._take_signals)
            self._listen()
            self._observer.turn(woken=False)
            self._notifier.notify("READY=1", "STATUS=watching")
            garbage_collection.make_rare()
            self._loop.run(self)
            self._notifier.notify("STOPPING=1")
        finally:
            if self._told is not None:
                self._keep(self._told, clock.now())
            self._observer.close()
            self._loop.close()
            self._signals.close()
            self._close_record()

    def due_ns(self) -> int:
        due = self._observer.due_ns()
        return min(due, self._watchdog_ns) if self._notifier.watchdog_ns else due

    def turn(self, *, woken: bool) -> None:
        self._observer.turn(woken=woken)
        now = clock.now().monotonic_ns
        if now >= self._give_back_ns:
            self._give_back_ns = now + GIVE_BACK_NS
            self._heap.give_back()
        if self._notifier.watchdog_ns and now >= self._watchdog_ns:
            self._watchdog_ns = now + self._notifier.watchdog_ns
            self._notifier.notify("WATCHDOG=1")
        self._listen()

    def _listen(self) -> None:
        """For who reads a report, once until the next turn: its owner can open it without end."""
        if not self._listens and (readers := self._readers.fileno()) is not None:
            self._loop.on_readable(readers, self._opened)
            self._listens = True

    def _opened(self) -> None:
        if self._readers.read(clock.now().monotonic_ns):
            self._observer.look_sooner()
        if (readers := self._readers.fileno()) is not None:
            self._loop.forget(readers)
        self._listens = False

    def _publish(self, report: Report) -> None:
        now = clock.now()
        report.sources["history"] = self._history.source()
        report.sources["owner_reports"] = self._owner_reports()
        told = withheld(report, self._config.privacy)
        if self._history.is_due(now.monotonic_ns, stalled=self._made.core.stalled):
            self._keep(told, now)
        self._publisher.publish(told, now.monotonic_ns)
        self._told = told

    def _owner_reports(self) -> Source:
        """Whether each user can read the report of his own runs."""
        live = self._publisher.owners.source
        return live if live.state != "up" else self._history.owner_reports

    def _keep(self, told: Report, now: Moment) -> None:
        self._history.add_report(told, self._made.core.take_steps(now), self._noted.at(now.monotonic_ns))

    def _recorder(self) -> Recorder | None:
        record = self._config.record
        if not record.path:
            return None
        file = open(record.path, "w", encoding="ascii", opener=_private)  # noqa: SIM115 - open as long as we run
        self._close_record = file.close
        return Recorder(to_file(file), compose_core.header(self._config), record.bytes)

    def _take_signals(self) -> None:
        for received in self._signals.read():
            if received.number == signal.SIGHUP:
                self._reload()
            else:
                self._loop.stop()

    def _reload(self) -> None:
        """A bad new file changes nothing."""
        self._notifier.notify("RELOADING=1", f"MONOTONIC_USEC={clock.now().monotonic_ns // 1000}")
        try:
            new = configuration.of_daemon(self._path)
        except ConfigError as error:
            complain(word("the new configuration is refused, the old one stays in force:"))
            tell(*error.as_sayings)
        else:
            self._config, waiting = reloaded(self._config, new)
            if waiting:
                what = saying("these changes wait for a restart: {names}", names=", ".join(waiting))
                complain(what, word("systemctl restart trainprobe"))
            self._made.core.policy = compose_core.policy(self._config)
            if not self._config.privacy.stacks:
                self._made.stacks.switch_off()
            self._made.observer.budget.share = self._config.budget.cpu
            self._history.retention = self._config.retention
        self._notifier.notify("READY=1")


def reloaded(old: DaemonConfig, new: DaemonConfig) -> tuple[DaemonConfig, list[str]]:
    """What holds from now on, and what waits for a restart: what the programs were started with, and stacks that were
    not to be kept and now are, because none is taken."""
    waiting = [name for name in AT_START if getattr(new, name) != getattr(old, name)]
    holds = dataclasses.replace(new, **{name: getattr(old, name) for name in waiting})
    if new.privacy.stacks and not old.privacy.stacks:
        holds = dataclasses.replace(holds, privacy=dataclasses.replace(new.privacy, stacks=False))
        waiting.append("privacy.stacks")
    return holds, waiting


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
