from __future__ import annotations

from typing import Any

import pytest

from trainprobe.model.moment import NS
from trainprobe.runtime.discovery import polls as polls_module
from trainprobe.runtime.discovery.polls import CANDIDATES_LIMIT, Poll, Polls


def ages(polls: Polls, until_s: float) -> list[float]:
    """At which ages (s) the one process that was added at 0 is looked at."""
    found = []
    while (at := polls.due_ns()) is not None and at <= until_s * NS:
        poll = polls.next_due(at)
        assert poll is not None
        found.append(at / NS)
        polls.again(poll)
    return found


def test_a_watched_process_is_looked_at_often_then_each_minute() -> None:
    polls = Polls()
    polls.add(7, 0, watched=True, now_ns=0)
    assert ages(polls, 200) == [0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 60, 120, 180]


def test_a_candidate_is_looked_at_ever_more_rarely() -> None:
    polls = Polls()
    polls.add(7, 0, watched=False, now_ns=0)
    assert ages(polls, 500) == [0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 60, 120, 240, 480]
    assert len(ages(polls, 86400)) < 30


def test_candidates_of_a_moment_are_looked_at_together_and_a_watched_process_does_not_wait_for_them() -> None:
    polls = Polls()
    for number in range(83):  # a second of a host that starts 5 000 processes a minute
        polls.add(1000 + number, number * NS // 83, watched=False, now_ns=number * NS // 83)
    polls.add(7, NS // 2, watched=True, now_ns=NS // 2)
    looks: dict[int, list[float]] = {}
    while (at := polls.due_ns()) is not None and at <= 2 * NS:
        poll = polls.next_due(at)
        assert poll is not None
        looks.setdefault(poll.pid, []).append(at / NS)
        polls.forget_process(poll.pid) if poll.pid != 7 else polls.again(poll)
    assert looks.pop(7) == [0.6, 0.75, 1, 1.5]
    moments = {look for each in looks.values() for look in each}
    assert len(looks) == 83
    assert len(moments) <= 5
    assert all(0.25 <= look - number / 83 < 0.51 for number, (look,) in enumerate(looks.values()))


def test_an_old_process_is_looked_at_once_now_then_by_its_age() -> None:
    polls = Polls()
    polls.add(7, 0, watched=False, now_ns=50 * NS)
    assert ages(polls, 300) == [50, 60, 120, 240]


@pytest.mark.parametrize("watched", [False, True])
def test_a_process_as_old_as_the_host_takes_no_longer(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    next_ns = Poll.next_ns
    monkeypatch.setattr(Poll, "next_ns", lambda poll: asked.append(1) or next_ns(poll))
    polls, year = Polls(), 365 * 86400
    polls.add(7, 0, watched=watched, now_ns=year * NS)
    assert len(asked) < 40
    first, second, *_ = ages(polls, year + 7300)
    assert (first, second - first <= 3600 + 60) == (year, True)


def test_a_new_exec_begins_anew() -> None:
    polls = Polls()
    polls.add(7, 0, watched=False, now_ns=0)
    polls.add(7, 10 * NS, watched=False, now_ns=10 * NS)
    assert ages(polls, 11) == [10.25, 10.5, 11]
    assert len(polls) == 1


def test_what_was_dropped_is_not_looked_at() -> None:
    polls = Polls()
    polls.add(7, 0, watched=False, now_ns=0)
    polls.forget_process(7)
    assert polls.due_ns() is None
    assert polls.next_due(NS) is None


def test_candidates_are_bounded_and_watched_ones_always_fit() -> None:
    polls = Polls()
    for pid in range(CANDIDATES_LIMIT + 100):
        polls.add(pid, 0, watched=False, now_ns=0)
    assert len(polls) == CANDIDATES_LIMIT
    polls.add(10**6, 0, watched=True, now_ns=0)
    assert 10**6 in polls


def test_an_owners_first_look_goes_before_the_thousandth_of_another() -> None:
    polls = Polls()
    for number in range(1000):
        polls.add(1000 + number, 0, watched=False, now_ns=0, owner=number % 16)
    polls.add(7, 0, watched=False, now_ns=NS // 10, owner=99)
    looks = [polls.next_due(NS) for _ in range(34)]
    assert 7 in [poll.pid for poll in looks[:17] if poll is not None]
    assert [poll.owner for poll in looks[:17] if poll is not None] == [*range(16), 99]
    assert [poll.owner for poll in looks[17:33] if poll is not None] == [*range(16)]


def test_a_user_with_all_candidates_makes_room_for_another() -> None:
    polls = Polls()
    for pid in range(CANDIDATES_LIMIT):
        polls.add(pid, 0, watched=False, now_ns=0, owner=1)
    polls.add(10**6, 0, watched=False, now_ns=0, owner=1)
    assert 10**6 not in polls
    polls.add(10**6, 0, watched=False, now_ns=0, owner=2)
    assert 10**6 in polls
    assert len(polls) == CANDIDATES_LIMIT


def test_each_of_many_waiting_looks_is_moved_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = 0
    pop = polls_module.heapq.heappop

    def count(heap: list[Any]) -> Any:
        nonlocal moved
        moved += 1
        return pop(heap)

    monkeypatch.setattr(polls_module.heapq, "heappop", count)
    polls = Polls()
    for number in range(2000):
        polls.add(number, 0, watched=False, now_ns=0, owner=number)
    for _ in range(2000):
        poll = polls.next_due(NS // 4)
        assert poll is not None
        assert polls.due_ns() is not None or len(polls) == 2000
        polls.again(poll)
    assert moved == 2000
