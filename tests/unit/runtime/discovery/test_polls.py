from __future__ import annotations

from trainprobe.model.moment import NS
from trainprobe.runtime.discovery.polls import CANDIDATES_LIMIT, Polls


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
    assert ages(polls, 500) == [0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 60, 120, 240, 480]
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
