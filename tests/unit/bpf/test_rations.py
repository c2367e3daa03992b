# SPDX-License-Identifier: Apache-2.0
"""One user's files take neither the others' places nor much of the time."""

from __future__ import annotations

from trainprobe.bpf.rations import PLACES, USELESS_SECONDS, Rations

USER, OTHER = 1000, 1001


def test_a_user_who_has_taken_his_places_leaves_the_others_theirs() -> None:
    rations = Rations()
    for _ in range(PLACES):
        assert rations.refusal(USER) == ""
        rations.took(USER, 0.1, useful=True)
    assert "1000" in rations.refusal(USER)
    assert rations.refusal(OTHER) == ""


def test_time_counts_against_who_has_wasted_it() -> None:
    rations = Rations()
    rations.took(USER, USELESS_SECONDS + 1, useful=False)
    rations.took(OTHER, USELESS_SECONDS + 1, useful=True)
    assert "nothing was found" in rations.refusal(USER)
    assert rations.refusal(OTHER) == ""


def test_root_is_many_containers() -> None:
    rations = Rations()
    for _ in range(PLACES + 1):
        rations.took(0, USELESS_SECONDS, useful=False)
    assert rations.refusal(0) == ""


def test_a_place_that_was_given_back_is_free_again_and_wasted_time_is_not() -> None:
    rations = Rations()
    for _ in range(PLACES):
        rations.took(USER, 0.1, useful=True)
    rations.gave_back(USER)
    assert rations.refusal(USER) == ""
    rations.took(USER, USELESS_SECONDS + 1, useful=False)
    rations.gave_back(USER)
    assert "nothing was found" in rations.refusal(USER)
