"""The dashboard *Run across hosts*: the ranks of one run on all its hosts, the late one with its cause on top.

It asks the recording rules: which rank is late is decided there, by rates of counters alone, so no two hosts' clocks
are compared.
"""

from __future__ import annotations

from typing import Any

from grafana import thresholds
from grafana.causes import CAUSE_COLOURS
from grafana.dashboard import HOST_COLUMN, HOSTS_UID, RUN_COLUMN, dashboard_of
from grafana.layout import Line, Section
from grafana.lines import RATE
from grafana.panels import SHARE, Column, Q, lanes, table_of, time_series
from grafana.queries import RANGE, STEP, Queries
from grafana.rules.recording import COLLECTIVE, LATE, LATE_CAUSE, OWN
from grafana.scope import Scope

OTHERS_LEFT_OUT = 'cause!="collective_wait"'


def across_hosts() -> Any:
    q = Queries(Scope(one_run=True))
    return dashboard_of(
        HOSTS_UID,
        "Run across hosts",
        "The ranks of one run on all its hosts: which one is late, on which host, and its own cause.",
        q,
        [Section("The late rank", [_late(q.scope)]), Section("All ranks", _ranks(q.scope))],
        since="now-1h",
        toggles_on=(),
    )


def _late(scope: Scope) -> Line:
    here = scope.rank()
    return Line(
        9,
        table_of(
            "Ranks, the late one on top",
            "Late: how much more the others wait than this rank, or how much more it loses by itself. A click on a"
            " run opens its stalls, one on a host its memory and limits.",
            {
                "run": RUN_COLUMN,
                "instance": HOST_COLUMN,
                "rank": Column("rank"),
                "cause": Column("Its cause"),
            },
            [
                (f"{LATE}{here} or 0 * {COLLECTIVE}{here}", Column("Late", SHARE, thresholds.LATE_SHARE)),
                (f"{LATE_CAUSE}{here}", Column("Of it to its cause", SHARE)),
                (f"{COLLECTIVE}{here}", Column("Waits for others", SHARE)),
                (f"{OWN}{here}", Column("Loses by itself", SHARE)),
            ],
        ),
        time_series(
            "How late the late rank is",
            "Part of the time in which the others wait for it.",
            Q(f"{LATE_CAUSE}{here}", "rank {{rank}} on {{instance}}: {{cause}}"),
            unit=SHARE,
            none="no rank holds the others up, as far as is known",
        ),
        widths=(14, 10),
    )


def _ranks(scope: Scope) -> list[Line]:
    stalled = f"trainprobe_stall_seconds_total{scope.rank()}"
    lost = f"trainprobe_lost_seconds_total{scope.rank(OTHERS_LEFT_OUT)}"
    by = "instance, rank, cause"
    seen = f"max by ({by}) (increase({stalled}[{RANGE}] @ end())) > 0"
    now = f"max by ({by}) ({stalled} - ({stalled} offset {STEP})) > bool 0"
    return [
        Line(
            12,
            lanes(
                "Stalls, by rank and cause",
                "A lane for each rank and cause that lost time in the range; coloured while a stall goes on.",
                Q(f"({now}) and on ({by}) ({seen})", "{{rank}} on {{instance}}: {{cause}}"),
                on="stalled",
                colours={},
                none="no stall",
            ),
        ),
        Line(
            9,
            time_series(
                "Waits for the others, by rank",
                "The one that hardly waits is the one they all wait for.",
                Q(f"{COLLECTIVE}{scope.rank()}", "rank {{rank}} on {{instance}}"),
                unit=SHARE,
                none="no rank waits for others",
            ),
            time_series(
                "Lost by the ranks themselves, by cause",
                "Waiting for the others is left out. The worst rank stands for each cause.",
                Q(f"max by (cause) (rate({lost}[{RATE}]))", "{{cause}}"),
                unit=SHARE,
                colours=CAUSE_COLOURS,
                none="no rank loses time by itself",
            ),
        ),
    ]
