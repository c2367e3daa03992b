# SPDX-License-Identifier: Apache-2.0
"""Whose library is read next. No thread and no file: the turns alone."""

from __future__ import annotations

from collections import Counter

import pytest

from trainprobe.bpf.attach.library_readers import (
    LEAST_SECONDS,
    MAX_READERS,
    READERS_OF_RETURNING,
    READERS_OF_ROOT,
    SHARE,
    WAITING_SECONDS,
    Turns,
)
from trainprobe.bpf.attach.user_quota import ROOT

VICTIM = 7


class Host:
    def __init__(self) -> None:
        self.now = 0.0
        self.turns = Turns(lambda: self.now)
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


def test_one_user_reads_one_at_a_time_and_root_more(host: Host) -> None:
    assert [host.ask(VICTIM) for _ in range(3)] == [True, False, False]
    assert [host.ask(ROOT) for _ in range(READERS_OF_ROOT + 1)] == [True] * READERS_OF_ROOT + [False]
