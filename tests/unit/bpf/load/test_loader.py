# SPDX-License-Identifier: Apache-2.0
"""Programs that come in two lots, the later ones awaited by whoever wants one."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from trainprobe.bpf import errors
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load import fd_passing, loader
from trainprobe.bpf.load.kernel_calls import UprobeRefused
from trainprobe.bpf.load.loader import Compiling, Loaded
from trainprobe.text.render import Speaker


class Child:
    """Of the compiler; the test plays it."""

    stdout = None

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def kill(self) -> None:
        self._end.close()

    def wait(self) -> int:
        return -9


class Played(Compiling):
    """With a child that does what the test does through ``theirs``."""

    def __init__(self) -> None:
        self._complete = self._closed = False
        self._refused = None
        self._ours, self.theirs = fd_passing.channel()
        self._child = cast(Any, Child(self.theirs))


def null() -> int:
    return os.open("/dev/null", os.O_RDONLY)


def tell(end: socket.socket, group: str, *names: str, notes: tuple[str, ...] = ()) -> None:
    descriptors = {name: null() for name in names}
    fd_passing.send(end, {group: descriptors}, [], notes)
    for descriptor in descriptors.values():
        os.close(descriptor)


@pytest.fixture
def open_files() -> Iterator[None]:
    """As many at the end as at the beginning."""
    gc.collect()  # what tests of other files have left
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here calls it: these tests run where BCC is not installed, too."""
    monkeypatch.setattr(loader, "library", lambda: None)


@pytest.fixture
def started(open_files: None) -> Iterator[tuple[Loaded, socket.socket]]:
    """What has been loaded when events are there, and the compiler's end."""
    played = Played()
    tell(played.theirs, "program", "on_switch")
    loaded = played.finish()
    yield loaded, played.theirs
    loaded.close()
    played.theirs.close()


def test_who_wants_a_mark_waits_until_it_is_there(started: tuple[Loaded, socket.socket]) -> None:
    loaded, theirs = started
    assert list(loaded.programs) == ["on_switch"]
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(loaded.programs["on_record"]))
    waiting.start()
    loaded.look_after()  # does not wait, whoever else does
    time.sleep(0.02)
    assert not found
    tell(theirs, "program", "on_record", "on_backward")
    waiting.join(10)
    assert found == [loaded.programs["on_record"]]
    assert sorted(loaded.programs) == ["on_backward", "on_record", "on_switch"]


def test_marks_are_taken_when_they_are_ready(started: tuple[Loaded, socket.socket]) -> None:
    loaded, theirs = started
    loaded.look_after()
    assert "on_record" not in list(loaded.programs)
    tell(theirs, "program", "on_record")
    loaded.look_after()
    assert "on_record" in list(loaded.programs)
    loaded.look_after()


def test_marks_that_could_not_be_made_are_refused_each_time(started: tuple[Loaded, socket.socket]) -> None:
    loaded, theirs = started
    fd_passing.refuse(theirs, "the kernel refused the program on_record: Permission denied\nlog", "another kernel")
    loaded.look_after()
    for _ in range(2):
        with pytest.raises(UprobeRefused, match=r"on_record: Permission denied$"):
            loaded.programs["on_record"]
        with pytest.raises(ProbesUnavailable, match="another kernel"):
            loaded.await_marks()
    assert loaded.programs["on_switch"] > 0


def test_a_refusal_comes_as_messages_and_a_command_as_it_is(started: tuple[Loaded, socket.socket]) -> None:
    loaded, theirs = started
    reason = errors.BY_FILTER(refused=errors.NO_BPF(error="Operation not permitted"))
    fd_passing.refuse(theirs, reason, errors.APT_BCC)
    with pytest.raises(ProbesUnavailable) as refused:
        loaded.await_marks()
    assert refused.value.reason == reason
    assert refused.value.remedy == errors.APT_BCC
    assert Speaker("zh").text(refused.value.reason) != str(reason)


def test_a_compiler_that_dies_over_the_marks_leaves_the_events(started: tuple[Loaded, socket.socket]) -> None:
    loaded, theirs = started
    theirs.close()
    with pytest.raises(UprobeRefused, match="compiler died with status -9"):
        loaded.programs["on_record"]
    assert list(loaded.programs) == ["on_switch"]


def test_it_can_be_closed_while_somebody_waits(open_files: None) -> None:
    played = Played()
    tell(played.theirs, "program", "on_switch")
    loaded = played.finish()
    said: list[str] = []

    def want() -> None:
        try:
            loaded.programs["on_record"]
        except UprobeRefused as error:
            said.append(str(error))

    waiting = threading.Thread(target=want)
    waiting.start()
    time.sleep(0.02)
    loaded.close()
    waiting.join(10)
    assert said
    played.theirs.close()


def test_notes_are_told(open_files: None, capfd: pytest.CaptureFixture[str]) -> None:
    played = Played()
    tell(played.theirs, "program", "on_switch", notes=("a file is ignored: it is damaged",))
    played.finish().close()
    assert capfd.readouterr().err == "trainprobe: a file is ignored: it is damaged\n"


def test_nothing_is_kept_of_a_lot_that_ends_in_the_middle(open_files: None, tmp_path: Path) -> None:
    played = Played()
    descriptor = null()
    socket.send_fds(played.theirs, [b'{"kind": "program", "names": ["on_switch"]}'], [descriptor])
    os.close(descriptor)
    played.theirs.close()
    with pytest.raises(ProbesUnavailable, match="died"):
        played.finish()
