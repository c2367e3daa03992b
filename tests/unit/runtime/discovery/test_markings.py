"""Which libraries the kernel side is asked for: pure, no clock."""

from __future__ import annotations

from trainprobe.collect.mapping import Mapping
from trainprobe.model.moment import NS
from trainprobe.runtime.discovery.markings import AT_ONCE, MARKING_NS, OF_ONE, OF_ROOT, Markings
from trainprobe.runtime.discovery.user_shares import ROOT

VICTIM = 99
LIBRARY = Mapping(1, 2, (3, 4), 5, "/libtorch_cpu.so")


def crowd(owners: int, each: int) -> Markings:
    markings = Markings()
    for number in range(owners * each):
        markings.begin(1000 + number, 100 + number % owners, LIBRARY)
    return markings


def ask(markings: Markings, now: int) -> list[int]:
    """Each is asked for, and is being read."""
    chosen = markings.take_due(now)
    for _, marking in chosen:
        marking.ask_again(now)
    return [pid for pid, _ in chosen]


def test_an_owners_first_library_goes_before_the_thousandth_of_others() -> None:
    markings = crowd(owners=200, each=10)
    now = NS
    for _ in range(20):
        now += MARKING_NS
        assert len(ask(markings, now)) <= AT_ONCE
    markings.begin(7, VICTIM, LIBRARY)
    assert ask(markings, now + MARKING_NS)[0] == 7


def test_one_owner_is_asked_for_few_at_a_time_in_their_order() -> None:
    markings = crowd(owners=1, each=1000)
    assert ask(markings, NS) == [*range(1000, 1000 + OF_ONE)]
    assert ask(markings, 2 * NS) == [*range(1000, 1000 + OF_ONE)], "until the first ones have an answer"
    markings.end(1000)
    assert ask(markings, 3 * NS) == [*range(1001, 1001 + OF_ONE)]


def test_root_has_more_as_containers_are_his() -> None:
    markings = Markings()
    for pid in range(100):
        markings.begin(pid, ROOT, LIBRARY)
    assert len(ask(markings, NS)) == OF_ROOT


def test_those_that_were_not_asked_for_wake_nobody_at_once() -> None:
    markings = crowd(owners=1, each=1000)
    assert markings.due_ns() == 0
    ask(markings, NS)
    assert markings.due_ns() == NS + MARKING_NS


def test_what_was_refused_leaves_its_place_to_the_next() -> None:
    markings = crowd(owners=1, each=100)
    for _, marking in markings.take_due(NS):
        marking.ask_later(NS)
    assert ask(markings, NS + MARKING_NS) == [*range(1000 + OF_ONE, 1000 + 2 * OF_ONE)]
