"""When the programs of watched processes are detached, and when they are attached again."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from trainprobe.bpf.attach.attachments import IDLE_NS, TRIES, Attachments

MINE, KEPT = "raw:sched_switch on_switch", "raw:sched_process_exec on_exec"


class Processes(dict[int, Any]):
    """The kernel's table, by pid."""

    def entries(self) -> list[tuple[Any, Any]]:
        return [(SimpleNamespace(value=pid), process) for pid, process in self.items()]

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key.value, default)

    def delete(self, key: Any) -> None:
        self.pop(key.value, None)


class Host:
    """A kernel with two programs, one of which serves watched processes alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.close", lambda descriptor: None)
        monkeypatch.setattr("os.path.exists", lambda path: True)
        self.now, self.processes, self.opened = 0, Processes(), dict[int, Any]()
        calls = SimpleNamespace(attach_raw_tracepoint=lambda program, event: 9)
        self.starts = Processes()
        self.loaded = SimpleNamespace(
            attached={MINE: 3, KEPT: 4}, missing=[], programs={"on_switch": 5}, calls=calls,
            map=lambda *_: self.starts,
        )  # fmt: skip
        ledgers = SimpleNamespace(get=self.opened.get, delete=lambda tid: None)
        self.helpers: set[int] = set()
        self.subject = Attachments(
            self.loaded,
            self.processes,
            ledgers,
            {},
            self.helpers,
            lambda: self.now,  # type: ignore[arg-type]
        )

    def later(self, seconds: float) -> bool:
        """Whether the programs are attached after so long, looked at each second."""
        for _ in range(round(seconds)):
            self.now += 1_000_000_000
            self.subject.look_after()
        return not self.subject.idle

    def start(self, pid: int, *, tentative: bool) -> None:
        self.processes[pid] = SimpleNamespace(tentative=tentative)
        self.opened[pid] = SimpleNamespace(opened=self.now)
        self.starts[pid] = SimpleNamespace()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_after_a_minute_without_a_watched_process_they_are_detached(host: Host) -> None:
    assert host.later(55)
    assert not host.later(15)
    assert host.loaded.attached.keys() == {KEPT}


def test_while_one_is_watched_they_stay(host: Host) -> None:
    host.start(7, tentative=False)
    assert host.later(500)


def test_a_python_counts_for_its_first_minute(host: Host) -> None:
    host.start(7, tentative=True)
    assert host.later(100)
    assert not host.later(30)
    assert host.processes == host.starts == {}, "it is looked for no longer, and nobody would see its end"


@pytest.mark.parametrize("known", [True, False])
def test_a_python_that_starts_brings_them_back(host: Host, known: bool) -> None:
    assert not host.later(100)
    if known:
        host.start(7, tentative=True)
    host.subject.started(7)
    assert host.subject.idle is not known
    assert (MINE in host.loaded.attached) is known


def test_a_helper_of_ours_is_no_training(host: Host) -> None:
    """On an idle host each search starts another one, for it ends when nothing is asked for a while."""
    for helper in (7, 8, 9):
        host.helpers.add(helper)
        host.start(helper, tentative=True)
        host.later(40)
    assert host.subject.idle
    host.start(9, tentative=True)
    host.subject.started(9)
    assert host.subject.idle


def test_what_is_watched_brings_them_back_for_a_minute(host: Host) -> None:
    assert not host.later(100)
    host.subject.resume()
    assert host.loaded.attached.keys() == {MINE, KEPT}
    assert host.later(IDLE_NS / 1e9 - 5)
    assert not host.later(20)


@pytest.mark.parametrize("closed", [0, 1, 2, 3])
def test_programs_of_one_event_come_back_in_their_order(host: Host, closed: int) -> None:
    """The kernel runs them in the order in which they were attached; what is not detached yet stays."""
    labels = [f"syscalls:sys_enter_io_submit {name}" for name in ("on_submit_begin", "on_write_begin", "on_last")]
    host.loaded.attached = dict.fromkeys(labels, 3)
    host.loaded.programs = {label.split()[1]: place for place, label in enumerate(labels)}
    order: list[int] = []

    def attach(program: int, tracefs: str, category: str, event: str) -> int:
        order.append(program)
        return 9

    host.loaded.calls.attach_tracepoint = attach
    closing = host.subject._stop
    closing.is_set = lambda: len(host.subject._detached) >= closed  # type: ignore[method-assign]
    assert not host.later(100)
    host.subject.resume()
    assert order == list(range(3 - closed, 3))
    assert host.loaded.attached.keys() == {*labels}


def test_what_cannot_be_attached_again_is_missing(host: Host) -> None:
    refuse(host, TRIES)
    assert not host.later(100)
    host.subject.resume()
    assert host.loaded.missing == ["raw:sched_switch"]


def refuse(host: Host, times: int) -> list[int]:
    """The kernel refuses so often; how often it was asked goes on in the list."""
    asked: list[int] = []

    def attach(program: int, event: str | None) -> int:
        asked.append(program)
        if len(asked) <= times:
            raise OSError(errno.EPERM, "no")
        return 9

    host.loaded.calls.attach_raw_tracepoint = attach
    return asked


def test_what_is_refused_is_tried_again(host: Host) -> None:
    asked = refuse(host, 2)
    assert not host.later(100)
    host.subject.resume()
    assert host.loaded.missing == ["raw:sched_switch"]
    assert host.later(11)
    assert host.loaded.missing == []
    assert MINE in host.loaded.attached
    assert host.later(20)
    assert len(asked) == 3


def test_it_is_not_tried_for_ever_but_after_the_next_idle_time(host: Host) -> None:
    asked = refuse(host, TRIES)
    assert not host.later(100)
    host.subject.resume()
    host.start(7, tentative=False)
    assert host.later(500)
    assert (len(asked), host.loaded.missing) == (TRIES, ["raw:sched_switch"])
    host.processes.clear()
    assert not host.later(100)
    host.subject.resume()
    assert (host.loaded.missing, MINE in host.loaded.attached) == ([], True)
