"""Recording rules: what alerts and fleet-wide questions are asked of again and again."""

from __future__ import annotations

from dataclasses import dataclass

from grafana.rules import thresholds as limit
from grafana.rules.expressions import NAMED, RANK, RUN, share, worst_rank

COLLECTIVE = f"rank:trainprobe_collective_ratio:rate{limit.LATE_WINDOW}"
MARGIN = f"rank:trainprobe_straggler_margin_ratio:rate{limit.LATE_WINDOW}"
OWN = f"rank:trainprobe_own_loss_ratio:rate{limit.LATE_WINDOW}"
OWN_LOSS = f"rank_cause:trainprobe_own_loss_ratio:rate{limit.LATE_WINDOW}"
LATE = f"rank:trainprobe_late_ratio:rate{limit.LATE_WINDOW}"
LATE_CAUSE = f"rank_cause:trainprobe_late_ratio:rate{limit.LATE_WINDOW}"
STALLED = f"run:trainprobe_stall_ratio:max_rate{limit.STALL_WINDOW}"
LOSS = f"rank_cause:trainprobe_lost_seconds:rate{limit.LOST_WINDOW}"
LOST_OF_RANK = f"rank:trainprobe_lost_ratio:rate{limit.LOST_WINDOW}"
LOST_LATELY = f"run:trainprobe_lost_ratio:max_rate{limit.LOST_WINDOW}"
LOST_LONG = f"run:trainprobe_lost_ratio:max_rate{limit.BUDGET_WINDOW}"
LOST_BY_CAUSE = f"run_cause:trainprobe_lost_ratio:max_rate{limit.LOST_WINDOW}"
BADPUT_BY_SOURCE_LATELY = f"run_source:trainprobe_badput_seconds:increase{limit.BUDGET_WINDOW}"
BADPUT_BY_SOURCE_LONG = f"run_source:trainprobe_badput_seconds:increase{limit.GOODPUT_WINDOW}"
BADPUT_LATELY = f"run:trainprobe_badput_ratio:rate{limit.BUDGET_WINDOW}"
BADPUT_LONG = f"run:trainprobe_badput_ratio:rate{limit.GOODPUT_WINDOW}"
GPUS_LOST = f"run_cause:trainprobe_gpus_lost:rate{limit.LOST_WINDOW}"
SOURCES_DOWN = "source:trainprobe_source_up:down"

_LOST = f"trainprobe_lost_seconds_total{{{NAMED}}}"
_WALL = f"trainprobe_run_wall_seconds_total{{{NAMED}}}"
_GPUS = f"count by ({RANK}) (trainprobe_run_gpu_info{{{NAMED}}})"


@dataclass(frozen=True)
class Recording:
    """``meaning`` goes to the documentation."""

    record: str
    expr: str
    meaning: str


def _badput(window: str) -> str:
    """By source. One that is younger than its job's account begins with what it has cost, and increase() does not see
    that; but the account of a job may be older than its series."""
    series = f"trainprobe_badput_seconds_total[{window}]"
    account = f"count_over_time(trainprobe_run_attempts[{window}])"
    young = f"trainprobe_badput_seconds_total\nand count_over_time({series}) < on ({RUN}) group_left ()\n{account}"
    return f"{young}\nor increase({series})"


def _badput_ratio(badput: str, window: str) -> str:
    """Of badput and productive time together: the gap between two attempts is in no rank's wall time. What a failure
    took back is in a rank's productive time too, which never falls."""
    every = f"sum by ({RUN}) ({badput})"
    wasted = f'sum by ({RUN}) ({badput}{{badput_source="wasted_progress"}}) or 0 * {every}'
    productive = f"avg by ({RUN}) (increase(trainprobe_productive_seconds_total{{{NAMED}}}[{window}]))"
    kept = f"clamp_min({productive} - on ({RUN}) ({wasted}), 0)"
    return f"{every}\n/ on ({RUN})\n(\n{every}\n+ on ({RUN})\n{kept}\n> 0)"


# Most causes cost a rank nothing. What is above 0 is a tenth of the series, and all else about losses is made of it.
_LOST_OF_RANK = f"""\
{share(f"sum by ({RANK}) ({LOSS})", limit.LOST_WINDOW)}
or
0 * sum by ({RANK}) (rate({_WALL}[{limit.LOST_WINDOW}]) > 0)"""


# A rank that has never waited has no series of this state: its share is 0 while it lives, and it is the suspect.
_COLLECTIVE_RATIO = f"""\
sum by ({RANK}) (rate(trainprobe_state_seconds_total{{{NAMED},state="collective"}}[{limit.LATE_WINDOW}]))
/ on ({RANK})
sum by ({RANK}) (rate({_WALL}[{limit.LATE_WINDOW}]) > 0)
or
0 * sum by ({RANK}) (rate({_WALL}[{limit.LATE_WINDOW}]) > 0)"""


def _beyond_the_others(of_each: str) -> str:
    """By how much a rank differs from the mean of the run's other ranks, which may live on other hosts."""
    others = f"sum by (job, run) ({of_each}) - on (job, run) group_right () {of_each}"
    many = f"((count by (job, run) ({of_each}) > 1) - 1)"
    return f"(\n  ({others})\n  / on (job, run) group_left ()\n  {many}\n)\n- {of_each}"


_STRAGGLER_MARGIN = _beyond_the_others(COLLECTIVE)

_OWN_LOSS = share(
    f'(rate(trainprobe_lost_seconds_total{{{NAMED},cause!="collective_wait"}}[{limit.LATE_WINDOW}]) > 0)',
    limit.LATE_WINDOW,
)

_WAITS_LEAST = f"""\
{MARGIN} > {limit.LATE_SHARE}
and on ({RANK})
(
  {COLLECTIVE}
  <= on (job, run) group_left ()
  (min by (job, run) ({COLLECTIVE}) + {limit.STRAGGLER_TIE_SHARE})
)"""

# A rank whose communication thread is kept from running waits in the collective as all others do. What it loses to
# something else tells it apart, where the run as a whole waits.
_LOSES_MOST = f"""\
topk by (job, run) (1, -1 * (
{_beyond_the_others(OWN)}
) > {limit.LATE_SHARE})
and on (job, run)
(avg by (job, run) ({COLLECTIVE}) > {limit.LATE_SHARE})"""

_LATE = f"({_WAITS_LEAST})\nor\n(({_LOSES_MOST})\nunless on (job, run) ({MARGIN} > {limit.LATE_SHARE}))"

# What all ranks lose alike makes none of them late: of a rank's causes the one counts that it has beyond the mean.
_EXCESS = f"""\
(
  {OWN_LOSS}
  - on (job, run, cause) group_left ()
  (
    sum by (job, run, cause) ({OWN_LOSS})
    / on (job, run) group_left ()
    count by (job, run) ({COLLECTIVE})
  )
  > 0
  and on ({RANK})
  {LATE}
)"""

_LATE_CAUSE = f"""\
topk by ({RANK}) (1, {_EXCESS})
or
label_replace({LATE} unless on ({RANK}) {_EXCESS}, "cause", "unknown", "", "")"""

RECORDINGS = (
    Recording(
        STALLED,
        worst_rank(f"sum by ({RANK}) (rate(trainprobe_stall_seconds_total{{{NAMED}}}[{limit.STALL_WINDOW}]))"),
        "Share of the time lost to stalls, in the run's worst rank.",
    ),
    Recording(
        LOSS, f"rate({_LOST}[{limit.LOST_WINDOW}]) > 0", "Seconds that a rank loses each second, by cause; no zeros."
    ),
    Recording(
        LOST_BY_CAUSE,
        f"max by ({RUN}, cause) (\n{share(LOSS, limit.LOST_WINDOW)}\n)",
        "Share of the time lost, by cause, in the run's worst rank; no zeros.",
    ),
    Recording(LOST_OF_RANK, _LOST_OF_RANK, "Share of the time that a rank loses to all causes."),
    Recording(LOST_LATELY, worst_rank(LOST_OF_RANK), "The same of the run's worst rank."),
    Recording(
        LOST_LONG, worst_rank(f"avg_over_time({LOST_OF_RANK}[{limit.BUDGET_WINDOW}])"), "The same over a longer time."
    ),
    Recording(
        GPUS_LOST,
        f"sum by ({RUN}, cause) (\n{LOSS}\n* on ({RANK}) group_left ()\n{_GPUS}\n)",
        "GPUs that a cause takes away at present: seconds lost per second of each rank, times its GPUs.",
    ),
    Recording(SOURCES_DOWN, "trainprobe_source_up == 0", "Sources that a host lacks."),
    Recording(
        BADPUT_BY_SOURCE_LATELY,
        _badput(limit.BUDGET_WINDOW),
        "Seconds of the job that were not productive, by what they went to.",
    ),
    Recording(BADPUT_BY_SOURCE_LONG, _badput(limit.GOODPUT_WINDOW), "The same over a longer time."),
    Recording(
        BADPUT_LATELY,
        _badput_ratio(BADPUT_BY_SOURCE_LATELY, limit.BUDGET_WINDOW),
        "Share of the job's time that was not productive.",
    ),
    Recording(
        BADPUT_LONG,
        _badput_ratio(BADPUT_BY_SOURCE_LONG, limit.GOODPUT_WINDOW),
        "The same over a longer time.",
    ),
    Recording(COLLECTIVE, _COLLECTIVE_RATIO, "Share of the time in which a rank waits for the others."),
    Recording(
        MARGIN,
        _STRAGGLER_MARGIN,
        "How much more the other ranks of the run wait for others than this one: the straggler has the largest.",
    ),
    Recording(
        OWN_LOSS,
        f"{_OWN_LOSS}\n> {limit.OWN_LOSS_SHARE}",
        "Share of its time that a rank itself loses, by cause; waiting for the others is left out.",
    ),
    Recording(OWN, f"sum by ({RANK}) ({OWN_LOSS}) or 0 * {COLLECTIVE}", "The same of all causes together."),
    Recording(
        LATE,
        _LATE,
        "The late rank of each run, on its host: the one that waits least while the others wait; where all wait alike,"
        " the one that loses most to something else. Only counters' rates are compared, never two hosts' clocks.",
    ),
    Recording(
        LATE_CAUSE,
        _LATE_CAUSE,
        "The same with the cause that the late rank itself loses most to, beyond the mean of all ranks, and how much:"
        " the cause of the whole run's waiting.",
    ),
)
