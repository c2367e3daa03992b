# SPDX-License-Identifier: Apache-2.0
"""One user's files take neither the others' places nor much of the time."""

from __future__ import annotations

from trainprobe.bpf.attach.user_quota import (
    FULL,
    FULL_OF_ONE,
    MOST,
    PLACES,
    RESERVED,
    SHARED,
    USELESS,
    USELESS_SECONDS,
    USELESS_SHARE,
    UserQuota,
)

USER, OTHER = 1000, 1001


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_user_who_has_taken_his_places_leaves_the_others_theirs() -> None:
    quota = UserQuota()
    for _ in range(PLACES):
        assert quota.refusal(USER) == ""
        quota.took(USER, 0.1, useful=True)
    assert quota.refusal(USER) == FULL_OF_ONE(number=PLACES, user=USER)
    assert quota.refusal(OTHER) == ""


def test_some_users_who_fill_the_host_leave_each_other_some_places() -> None:
    quota = UserQuota()
    for number in range(SHARED):
        quota.took(2000 + number // PLACES, 0.1, useful=True)
    for _ in range(RESERVED):
        assert quota.refusal(USER) == ""
        quota.took(USER, 0.1, useful=True)
    assert quota.refusal(USER) == FULL(number=SHARED, own=RESERVED, user=USER)
    assert quota.refusal(OTHER) == ""


def test_root_takes_no_more_than_the_host_shares_and_all_together_have_an_end() -> None:
    quota = UserQuota()
    for number in range(SHARED):
        assert quota.refusal(0) == "", number
        quota.took(0, 0.1, useful=True)
    assert quota.refusal(0) != ""
    for number in range(MOST - SHARED):
        quota.took(3000 + number, 0.1, useful=True)
    assert quota.refusal(USER) != ""


def test_time_counts_against_who_has_wasted_it_and_is_forgotten() -> None:
    clock = Clock()
    quota = UserQuota(clock)
    quota.took(USER, USELESS_SECONDS + 1, useful=False)
    quota.took(OTHER, USELESS_SECONDS + 1, useful=True)
    assert quota.refusal(USER) == USELESS(user=USER, seconds=USELESS_SECONDS)
    assert quota.refusal(OTHER) == ""
    clock.seconds += 1.1 / USELESS_SHARE
    assert quota.refusal(USER) == ""


def test_what_is_useless_takes_no_place() -> None:
    quota = UserQuota()
    for _ in range(10 * PLACES):
        quota.took(USER, 0.01, useful=False)
    assert quota.refusal(USER) == ""


def test_the_useless_files_of_root_are_those_of_many_containers() -> None:
    quota = UserQuota()
    for _ in range(PLACES + 1):
        quota.took(0, USELESS_SECONDS, useful=False)
    assert quota.refusal(0) == ""


def test_a_place_that_was_given_back_is_free_again() -> None:
    quota = UserQuota()
    for _ in range(PLACES):
        quota.took(USER, 0.1, useful=True)
    quota.gave_back(USER)
    assert quota.refusal(USER) == ""
