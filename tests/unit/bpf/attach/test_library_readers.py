# SPDX-License-Identifier: Apache-2.0
"""Whose library is read next, and that the answer comes to whoever asked. No file is read."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from trainprobe.bpf.attach.library_readers import (
    HELD_BACK,
    LEAST_SECONDS,
    MAX_READERS,
    READERS_OF_RETURNING,
    READERS_OF_ROOT,
    SHARE,
    TOLD_SECONDS,
    USELESS_SHARE,
    WAITING_SECONDS,
    LibraryRead,
    LibraryReaders,
    MarksAttached,
    ReaderQueue,
)
from trainprobe.bpf.attach.user_quota import ROOT

VICTIM = 7


class Host:
    def __init__(self) -> None:
        self.now = 0.0
        self.turns = ReaderQueue(lambda: self.now)
        self.running: Counter[int] = Counter()

    def ask(self, uid: int) -> bool:
        began = self.turns.may_begin(uid, self.running)
        self.running[uid] += began
        return began

    def end(self, uid: int, seconds: float = 0.1, *, useless: bool = True) -> None:
        self.running[uid] -= 1
        self.turns.took(uid, seconds, useless=useless)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.mark.parametrize("crowd", [16, 200])
def test_a_users_first_library_goes_before_the_thousandth_of_others(host: Host, crowd: int) -> None:
    """Each of the others has a thousand, and asks again as soon as one is read."""
    others = range(100, 100 + crowd)
    for turn in range(1000):
        host.now += 0.02
        for uid in others:
            if host.running[uid] and (turn + uid) % 5 == 0:
                host.end(uid)
            host.ask(uid)
    assert host.running.total() <= READERS_OF_RETURNING
    assert host.ask(VICTIM)


def test_who_comes_while_all_places_are_taken_is_the_next_one(host: Host) -> None:
    for uid in range(100, 100 + MAX_READERS):
        assert host.ask(uid), "all of them come newly"
    assert not host.ask(VICTIM)
    for uid in range(100, 100 + MAX_READERS):
        host.end(uid)
        assert not host.ask(uid)
        host.now += 0.001
    assert host.ask(VICTIM)


def test_of_those_who_return_the_one_who_has_taken_least_is_next(host: Host) -> None:
    for uid in range(100, 100 + READERS_OF_RETURNING + 2):
        assert host.ask(uid)
        host.end(uid, seconds=uid, useless=False)
    busy = range(102, 102 + READERS_OF_RETURNING)
    assert [host.ask(uid) for uid in busy] == [True] * READERS_OF_RETURNING
    assert not host.ask(101)
    assert not host.ask(100)
    host.end(102)
    assert not host.ask(101)
    assert host.ask(100)


def test_who_no_longer_asks_keeps_no_place(host: Host) -> None:
    for uid in range(100, 100 + MAX_READERS):
        host.ask(uid)
    assert not host.ask(VICTIM)
    host.end(100)
    host.now += WAITING_SECONDS
    assert host.ask(8)


def test_what_a_user_has_taken_is_forgotten(host: Host) -> None:
    host.ask(100)
    host.end(100, seconds=0.0)
    for uid in range(200, 200 + READERS_OF_RETURNING):
        assert host.ask(uid)
    assert not host.ask(100)
    host.now += LEAST_SECONDS / SHARE
    assert host.ask(100)


def test_useless_libraries_of_all_users_take_a_tenth_of_the_time_and_hold_up_only_their_users(host: Host) -> None:
    useless = 0.0
    host.ask(VICTIM)
    host.end(VICTIM, useless=False)
    while host.now < 600:
        host.now += 0.1
        for uid in range(100, 116):
            if host.running[uid]:
                host.end(uid)
                useless += 0.1
            host.ask(uid)
    assert 0.08 <= useless / 600 <= 0.12
    assert host.ask(VICTIM)
    assert host.turns.refusal() == HELD_BACK(share=USELESS_SHARE)
    host.now += TOLD_SECONDS
    assert not host.turns.refusal()


def test_who_waits_for_a_turn_alone_is_not_refused(host: Host) -> None:
    for uid in range(2 * MAX_READERS):
        host.ask(uid)
    assert not host.turns.refusal()


def test_one_user_reads_one_at_a_time_and_root_more(host: Host) -> None:
    assert [host.ask(VICTIM) for _ in range(3)] == [True, False, False]
    assert [host.ask(ROOT) for _ in range(READERS_OF_ROOT + 1)] == [True] * READERS_OF_ROOT + [False]


def test_an_answer_waits_for_whoever_asked_while_others_ask() -> None:
    """Each user's library is read once, whoever asks in between."""
    read: list[int] = []

    def work(one: LibraryRead, path: str) -> MarksAttached:
        read.append(one.pid)
        return MarksAttached({"backward": True}, f"of {one.pid}")

    readers = LibraryReaders(work)
    pids = (VICTIM, *range(100, 108))
    answers: dict[int, MarksAttached] = {}
    until = time.monotonic() + 10
    while len(answers) < len(pids):
        assert time.monotonic() < until, f"no answer about {set(pids) - set(answers)}; read: {Counter(read)}"
        for pid in pids:  # each is its own user's
            if pid not in answers and (answer := readers.ask(pid, pid, "/x/libtorch_cpu.so", 1, 2)) is not None:
                answers[pid] = answer
        time.sleep(0.01)
    assert answers == {pid: MarksAttached({"backward": True}, f"of {pid}") for pid in pids}
    assert Counter(read) == Counter(pids)


def test_an_answer_about_one_mapping_is_none_about_another_of_the_same_process() -> None:
    seen: list[int] = []

    def work(one: LibraryRead, path: str) -> MarksAttached:
        seen.append(one.start)
        return MarksAttached({"backward": True}, f"at {one.start}")

    readers = LibraryReaders(work)
    assert readers.ask(VICTIM, VICTIM, "/x/libtorch_cpu.so", 1, 2) is None
    until = time.monotonic() + 10
    while (answer := readers.ask(VICTIM, VICTIM, "/x/libtorch_cpu.so", 3, 4)) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert answer.reason == "at 3"
    assert seen == [1, 3]
