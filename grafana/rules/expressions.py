"""Parts of PromQL that more than one rule is made of.

Ranks of one run stall together, so a run is judged by its worst rank, never by their sum. ``run="other"`` is a sum over
runs and has no worst rank: rules that take shares leave it out, rules that count events keep it.
"""

from __future__ import annotations

from grafana.rules.thresholds import BUDGET_FOR, EVENT_WINDOW

HOST = "job, instance"
RUN = "job, instance, run"
RANK = "job, instance, run, rank"
NAMED = 'run!="other"'
TRAINPROBE = 'job=~"trainprobe.*"'
"""Jobs that scrape trainprobe: a target that is down has only the labels of its scrape."""

TRAINS = f'max by ({RUN}) (trainprobe_phase_active{{phase="train"}}) == 1'
"""Runs that train now: not starting, evaluating, ending or ended."""

TRAINS_ON = f"""\
max by ({RUN}) (max_over_time(trainprobe_phase_active{{phase="train"}}[{BUDGET_FOR}])) == 1
and on ({RUN}) max by ({RUN}) (trainprobe_phase_active) == 1"""
"""Runs that train, evaluations in between included: an alert that waits is not to begin anew after each of them."""

RANK_LIVES = f"max by ({RANK}) (trainprobe_phase_active) == 1"
"""Ranks that have not ended: their other series stay for a while after the end of the run."""

HAS_RUN = f"max by ({HOST}) (trainprobe_phase_active) == 1"
"""Hosts on which a run lives."""


def worst_rank(per_rank: str) -> str:
    return f"max by ({RUN}) ({per_rank})"


def share(seconds_total: str, window: str) -> str:
    """Of the wall time of each rank; nothing for a rank whose time stands still."""
    wall = f"rate(trainprobe_run_wall_seconds_total{{{NAMED}}}[{window}])"
    return f"{seconds_total}\n/ on ({RANK}) group_left ()\n({wall} > 0)"


def while_training(expression: str) -> str:
    return _where(expression, RUN, TRAINS)


def while_it_trains_on(expression: str) -> str:
    return _where(expression, RUN, TRAINS_ON)


def while_a_run_lives(expression: str) -> str:
    return _where(expression, HOST, HAS_RUN)


def _where(expression: str, on: str, condition: str) -> str:
    return f"(\n{expression}\n)\nand on ({on})\n({condition})"


def lately(series: str, by: str) -> str:
    return f"sum by ({by}) (\n{grown(series, EVENT_WINDOW)}\n)"


def lately_of_host(series: str, by: str) -> str:
    """Of a counter that begins with its first event and anew with the daemon, whose value may be the one it had.

    It has fewer samples in the window than there were reports of the daemon where it is younger than the window.
    """
    reports = f'sum_over_time(trainprobe_source_up{{source="daemon"}}[{EVENT_WINDOW}])'
    young = f"{series}\n  and count_over_time({series}[{EVENT_WINDOW}]) < on ({HOST}) group_left ()\n  {reports}"
    return f"sum by ({by}) (\n  {young}\n  or increase({series}[{EVENT_WINDOW}])\n)"


def grown(series: str, window: str, of: str = "") -> str:
    """Growth of a counter in the window, that of one which is younger too.

    increase() sees nothing of a counter whose first sample has the event already, as that of a run which died
    within one scrape interval; such a young counter counts with all it has. Young it is only where the daemon was
    heard at the beginning of the window: after a gap in the scrapes every counter looks new. ``of``: a further
    condition for a young one.
    """
    heard = f'(trainprobe_source_up{{source="daemon"}} offset {window} == 1)'
    young = f"({series} unless {series} offset {window})\n  and on ({HOST})\n  {heard}{of}"
    return f"  {young}\n  or increase({series}[{window}])"
