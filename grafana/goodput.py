"""The dashboard *Goodput*: GPU-hours and their price by what they went to, by user and by job, and week over week.

All of it is asked of the recording rules that add hours up (``grafana.rules.hours``): a week of the scraped counters of
a fleet is more than one query can read.
"""

from __future__ import annotations

from typing import Any

from grafana import thresholds
from grafana.causes import CAUSE_COLOURS
from grafana.dashboard import GOODPUT_UID, STALLS_OF_ROW, account_of
from grafana.layout import Line, Section
from grafana.panels import COUNT, MONEY, SHARE, Column, Q, bars, stat_of, table_of, time_series
from grafana.queries import RANGE
from grafana.rules.hours import BADPUT, GPU_HOURS_LOST, HELD, OF_JOB, OF_USER, PRODUCTIVE, WASTE
from grafana.rules.thresholds import ACCOUNT_WINDOW
from grafana.variables import account_variables

_CHOSEN = '{job=~"$job",user=~"$user"}'
_WEEK = "7d"
_DAY = "1d"
NONE = "no GPU seen, or the recording rules are not loaded"
PRICED = "GPU-hours times the price at the top of the dashboard."


def goodput() -> Any:
    return account_of(
        GOODPUT_UID,
        "Goodput",
        "GPU-hours and their price: what they went to, by cause, user and job; the ten that cost most; week over week.",
        account_variables(),
        [
            Section("In the time range", [_totals()]),
            Section("What it went to", [_sources(), _causes()]),
            Section("Who pays", [_users(), _jobs()]),
            Section("Week over week", [_share_by_week(), _weeks()]),
        ],
    )


def _summed(series: str, window: str = RANGE, offset: str = "") -> str:
    return f"sum_over_time({series}{_CHOSEN}[{window}]{f' offset {offset}' if offset else ''})"


def _hours(of: str, by: str = "", window: str = RANGE, offset: str = "") -> str:
    """GPU-hours, by a label of jobs or of users."""
    summed = _summed((OF_JOB if by == "run" else OF_USER)[of], window, offset)
    return f"sum by ({by}) ({summed})" if by else f"sum({summed})"


def _share(by: str = "", window: str = RANGE, offset: str = "") -> str:
    """The productive part."""
    return f"{_hours(PRODUCTIVE, by, window, offset)} / {_hours(HELD, by, window, offset)}"


def _totals() -> Line:
    levels = thresholds.PRODUCTIVE_SHARE
    return Line(
        4,
        stat_of("GPU-hours", "Of all jobs, with the gaps between their attempts.", COUNT, Q(_hours(HELD)), none=NONE),
        stat_of("Productive", "Of these GPU-hours.", SHARE, Q(_share()), levels=levels, decimals=1, none=NONE),
        stat_of("GPU-hours not productive", "Of all jobs.", COUNT, Q(_hours(WASTE)), decimals=1, none=NONE),
        stat_of("Price of these", PRICED, MONEY, Q(f"$price * {_hours(WASTE)}"), none=NONE),
        stat_of("Price of all", PRICED, MONEY, Q(f"$price * {_hours(HELD)}"), none=NONE),
        widths=(5, 4, 5, 5, 5),
    )


def _sources() -> Line:
    by_source = _hours(BADPUT, "badput_source")
    return Line(
        9,
        bars(
            "GPU-hours not productive, by what they went to",
            "Over all attempts of each job and the gaps between them.",
            COUNT,
            Q(f"sort_desc({by_source})", "{{badput_source}}"),
            none=NONE,
            colours={},
        ),
        bars(
            "Price of what was not productive",
            PRICED,
            MONEY,
            Q(f"sort_desc($price * {by_source})", "{{badput_source}}"),
            none=NONE,
            colours={},
        ),
    )


def _causes() -> Line:
    lost = _hours(GPU_HOURS_LOST, "cause")
    return Line(
        10,
        bars(
            "GPU-hours lost, by cause",
            "Stalls and bottlenecks while ranks trained: a part of what was not productive.",
            COUNT,
            Q(f"sort_desc({lost})", "{{cause}}"),
            none=NONE,
            colours=CAUSE_COLOURS,
        ),
        bars(
            "Price of what was lost, by cause",
            PRICED,
            MONEY,
            Q(f"sort_desc($price * {lost})", "{{cause}}"),
            none=NONE,
            colours=CAUSE_COLOURS,
        ),
    )


def _users() -> Line:
    return Line(
        9,
        table_of(
            "By user: the ten that lost most",
            "The user is known where `privacy.labels` is true on the hosts.",
            {"user": Column("user")},
            [*_columns("user")],
        ),
    )


def _jobs() -> Line:
    link = ("Training stalls of this job", STALLS_OF_ROW)
    worst = f"topk(10, {_hours(WASTE, 'run')})"
    main = f"sum by (run, badput_source) ({_summed(OF_JOB[BADPUT])})"
    return Line(
        11,
        table_of(
            "By job: the ten that lost most",
            "All hosts of a job are one row, an attempt with its own name (Slurm) another. A click opens its stalls.",
            {"run": Column("run", link=link), "badput_source": Column("Most of it to")},
            [*_columns("run"), (f"topk by (run) (1, {main}) and on (run) {worst}", Column("To this", COUNT))],
        ),
    )


def _columns(by: str) -> list[tuple[str, Column]]:
    worst = f"topk(10, {_hours(WASTE, by)})"
    these = f"and on ({by}) {worst}"
    return [
        (worst, Column("GPU-hours not productive", COUNT)),
        (f"$price * {worst}", Column("Price of these", MONEY)),
        (f"{_hours(HELD, by)} {these}", Column("GPU-hours", COUNT)),
        (f"{_share(by)} {these}", Column("Productive", SHARE, thresholds.PRODUCTIVE_SHARE)),
    ]


def _share_by_week() -> Line:
    return Line(
        9,
        time_series(
            "Productive part of a day",
            "Of all GPU-hours of the 24 hours before, and of those a week earlier.",
            Q(_share(window=_DAY), "this week", ACCOUNT_WINDOW),
            Q(_share(window=_DAY, offset=_WEEK), "the week before", ACCOUNT_WINDOW),
            unit=SHARE,
            most=1,
            levels=thresholds.PRODUCTIVE_SHARE,
            none=NONE,
        ),
        time_series(
            "GPU-hours not productive in a day",
            "Of the 24 hours before, by what they went to.",
            Q(_hours(BADPUT, "badput_source", window=_DAY), "{{badput_source}}", ACCOUNT_WINDOW),
            unit=COUNT,
            stacked=True,
            none=NONE,
        ),
    )


def _weeks() -> Line:
    by = "badput_source"
    now, before = _hours(BADPUT, by, _WEEK), _hours(BADPUT, by, _WEEK, _WEEK)
    return Line(
        9,
        table_of(
            "This week and the week before",
            "GPU-hours of the last seven days and of the seven before, whatever the time range.",
            {by: Column("Went to")},
            [
                (now, Column("This week", COUNT)),
                (before, Column("The week before", COUNT)),
                (f"({now} - on ({by}) {before}) / on ({by}) {before}", Column("Change", SHARE)),
                (f"$price * {now}", Column("Price of this week", MONEY)),
            ],
        ),
    )
