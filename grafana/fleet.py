"""The dashboard *Fleet*: all hosts and runs, what they lose, and which of them to look at first.

It asks the recording rules for whatever is about many ranks: a fleet has a million series, and a day of them is more
than one query can read.
"""

from __future__ import annotations

from typing import Any

from grafana import thresholds
from grafana.causes import CAUSE_COLOURS
from grafana.dashboard import FLEET_UID, HOST_COLUMN, RUN_COLUMN, dashboard_of
from grafana.layout import Line, Section, rows
from grafana.panels import COUNT, SECONDS, SHARE, Column, Q, bars, stat_of, table_of, time_series
from grafana.queries import Queries
from grafana.rules.hours import GPU_HOURS_LOST, RANK_HOURS, RANK_HOURS_LOST
from grafana.rules.recording import LOST_LATELY, SOURCES_DOWN
from grafana.rules.thresholds import HOURS_WINDOW
from grafana.scope import Scope
from trainprobe.model.vocabulary import REPORT_STALE_SECONDS


def fleet() -> Any:
    q = Queries(Scope())
    return dashboard_of(
        FLEET_UID,
        "Fleet",
        "All hosts and runs: GPU-hours lost by cause, the worst runs and hosts, ranks that hold the others up.",
        q,
        [
            Section("Now", [_now(q)]),
            Section("GPU-hours lost", _lost(q)),
            Section("Goodput of jobs", [_goodput(q)]),
            Section("Whom to look at first", _worst(q)),
            Section("trainprobe on the hosts", _agents(q)),
        ],
        since="now-24h",
        toggles_on=(),
    )


def _now(q: Queries) -> Line:
    return Line(
        4,
        stat_of(
            "Runs",
            "Runs that are watched now.",
            COUNT,
            Q(q.runs_now, "runs"),
            none="none",
        ),
        stat_of("Ranks", "Ranks that are watched now.", COUNT, Q(q.ranks_now, "ranks"), none="none"),
        stat_of(
            "Runs stalled now",
            "Runs of which a rank loses more than half of each second to stalls.",
            COUNT,
            Q(q.stalled_runs_now, "stalled"),
            levels=thresholds.STALLED_RUNS,
            none="no run",
        ),
        stat_of(
            "GPU-hours lost",
            "In the time range: seconds lost of each rank, times the GPUs that it uses.",
            COUNT,
            Q(f"sum({q.summed(GPU_HOURS_LOST)})", "GPU-hours"),
            decimals=1,
            none="no GPU seen",
        ),
        stat_of(
            "Lost of the wall time",
            "Of all ranks in the time range.",
            SHARE,
            Q(f"sum({q.summed(RANK_HOURS_LOST)}) / sum({q.summed(RANK_HOURS)})", "lost"),
            levels=thresholds.LOST_SHARE,
            decimals=1,
        ),
        stat_of(
            "Silent hosts",
            "Hosts whose exporter does not answer, or whose daemon does not report.",
            COUNT,
            Q(q.silent_hosts, "hosts"),
            levels=thresholds.COUNT_OF_FAILURES,
        ),
    )


def _lost(q: Queries) -> list[Line]:
    return [
        Line(
            10,
            bars(
                "GPU-hours lost, by cause",
                "In the time range; ranks that use no GPU are left out.",
                COUNT,
                Q(f"sort_desc(sum by (cause) ({q.summed(GPU_HOURS_LOST)}))", "{{cause}}"),
                none="no GPU seen, or nothing lost",
                colours=CAUSE_COLOURS,
            ),
            bars(
                "Rank-hours lost, by cause",
                "In the time range, ranks without a GPU too.",
                COUNT,
                Q(f"sort_desc(sum by (cause) ({q.summed(RANK_HOURS_LOST)}))", "{{cause}}"),
                none="nothing to show",
                colours=CAUSE_COLOURS,
            ),
            time_series(
                "GPUs that stand still, by cause",
                "GPU-hours lost in an hour: as many GPUs as do nothing for that cause.",
                Q(q.gpus_lost, "{{cause}}", HOURS_WINDOW),
                unit=COUNT,
                stacked=True,
                colours=CAUSE_COLOURS,
                none="no GPU seen, or none stands still",
            ),
            widths=(6, 6, 12),
        )
    ]


def _goodput(q: Queries) -> Line:
    return Line(
        9,
        bars(
            "GPU-hours that were not productive",
            "In the time range, over all attempts of each job and the gaps between them.",
            COUNT,
            Q(q.badput_gpu_hours, "{{badput_source}}"),
            none="no GPU seen",
            colours={},
        ),
        time_series(
            "Goodput of the worst jobs",
            "Productive part of a job's wall time so far, restarts included: the ten lowest.",
            Q(f"bottomk(10, min by (run) (trainprobe_goodput_ratio{q.scope.run()}))", "{{run}}", HOURS_WINDOW),
            unit=SHARE,
            none="no job",
        ),
    )


def _worst(q: Queries) -> list[Line]:
    return [
        Line(
            11,
            table_of(
                "Worst runs",
                "The 20 runs that lost most rank-hours in the time range. A click on a run opens its stalls.",
                {"run": RUN_COLUMN, "cause": Column("Main cause")},
                [
                    (q.worst_runs_hours, Column("Rank-hours lost", "h")),
                    (q.worst_runs_share, Column("Lost, worst rank", SHARE, thresholds.LOST_SHARE)),
                    (q.worst_runs_cause, Column("To the main cause", "h")),
                    (q.worst_runs_hosts, Column("Hosts", COUNT)),
                ],
            ),
            table_of(
                "Worst hosts",
                "The 20 hosts whose runs lost most rank-hours. A click opens their memory and limits.",
                {"instance": HOST_COLUMN},
                [(f"topk(20, sum by (instance) ({q.summed(RANK_HOURS_LOST)}))", Column("Rank-hours lost", "h"))],
            ),
            widths=(16, 8),
        ),
        Line(
            9,
            time_series(
                "Lost share of the worst runs",
                "The ten runs whose worst rank loses most.",
                Q(f"topk(10, max by (run) ({LOST_LATELY}{q.scope.run()}))", "{{run}}", HOURS_WINDOW),
                unit=SHARE,
                levels=thresholds.LOST_SHARE,
            ),
            time_series(
                "Straggler ranks",
                "How much more the others wait than this rank, or how much more it loses by itself.",
                Q(q.stragglers, "{{run}} rank {{rank}}"),
                unit=SHARE,
                none="no rank holds others up, as far as is known",
            ),
        ),
    ]


def _agents(q: Queries) -> list[Line]:
    lost = q.grown("trainprobe_events_lost_total", q.scope.host())
    return rows(
        time_series(
            "Hosts without a source",
            "How many hosts lack it, by source; not ready: something that a host needs has failed.",
            Q(f"count by (source) ({SOURCES_DOWN}{q.scope.host()})", "{{source}}"),
            Q(f"sum(trainprobe_ready{q.scope.host()} == bool 0)", "not ready"),
            unit=COUNT,
            none="none, as far as is known",
        ),
        time_series(
            "Age of the report",
            f"By host; more than {REPORT_STALE_SECONDS:.0f} s means that the daemon is silent.",
            Q(f"topk(10, {q.report_age})", "{{instance}}", HOURS_WINDOW),
            unit=SECONDS,
            levels=thresholds.REPORT_AGE_SECONDS,
        ),
        time_series(
            "Versions",
            "Hosts by the version of their exporter.",
            Q(f"count by (version) (trainprobe_build_info{q.scope.host()})", "{{version}}"),
            unit=COUNT,
            stacked=True,
        ),
        time_series(
            "Kernel events lost",
            "In each interval, by the hosts that lost most.",
            Q(f"topk(10, sum by (instance) ({lost}) > 0)", "{{instance}}", HOURS_WINDOW),
            unit=COUNT,
            levels=thresholds.EVENTS_LOST,
            none="none, as far as is known",
        ),
    )
