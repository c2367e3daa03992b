"""Advice carries the run's own numbers, and none where none were measured."""

from __future__ import annotations

from trainprobe.advise.text import Facts, advice
from trainprobe.model.cause import Cause

RECURRING = Facts(share=0.12, each=4.1, every=30, step_seconds=1.0)


def test_what_recurs_gets_the_interval_at_which_it_takes_one_per_cent() -> None:
    for cause, verb in ((Cause.CPU_BOUND, "do it"), (Cause.NETWORK, "send"), (Cause.LOGGING, "log")):
        assert f"{verb} every 410 steps instead of every 30: 1 % of the run, not 12.0%" in advice(cause, RECURRING)


def test_logging_in_every_step_is_thinned_by_its_share() -> None:
    (first, *_) = advice(Cause.LOGGING, Facts(share=0.23, writes_per_step=3.0))
    assert first == "log every 23 steps instead of every step (3.0 writes per step): 1 % of the run, not 23%"


def test_the_collector_is_a_candidate_only_where_no_line_was_seen() -> None:
    assert any("candidate" in line for line in advice(Cause.CPU_BOUND, Facts()))
    assert not any("candidate" in line for line in advice(Cause.CPU_BOUND, Facts(where="search (main.py:9)")))


def test_nothing_is_advised_to_come_more_often() -> None:
    rare = Facts(share=0.001, each=0.4, every=5_000, step_seconds=0.5)
    assert not any("every" in line for line in advice(Cause.NETWORK, rare))


def test_a_hang_of_a_worker_names_the_loader_only_where_there_is_one() -> None:
    """A pool of processes has no DataLoader whose timeout= could be set."""
    assert "DataLoader" in advice(Cause.WORKER_HANG, Facts(fetching=True))[0]
    assert "DataLoader" not in advice(Cause.WORKER_HANG, Facts())[0]
    assert "timeout=" in advice(Cause.WORKER_HANG, Facts())[0]
