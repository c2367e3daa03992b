"""The dashboard *Memory and limits*: what runs out next, of memory, swap, descriptors, shared memory, disks; GPUs."""

from __future__ import annotations

from typing import Any

from grafana import gpus, thresholds
from grafana.dashboard import MEMORY_UID, RUN_COLUMN, dashboard_of
from grafana.layout import Line, Section, rows
from grafana.lines import RATE
from grafana.panels import BYTES, COUNT, SECONDS, SHARE, Column, Q, fill, stat_of, table_of, time_series
from grafana.queries import RANGE, Queries
from grafana.scope import Scope


def memory_and_limits() -> Any:
    q = Queries(Scope())
    return dashboard_of(
        MEMORY_UID,
        "Memory and limits",
        "What a run may die of: memory and swap, file descriptors, shared memory, full disks, and how soon; its GPUs.",
        q,
        [
            Section("What runs out next", [_forecast(q), _ranks(q)]),
            Section("Memory", _memory(q)),
            Section("Swap and pressure", _swap(q)),
            Section("File descriptors", _descriptors(q)),
            Section("Shared memory", _shared_memory(q)),
            Section("Workers and disks", _workers(q)),
            Section("GPUs", _gpus(q)),
        ],
        since="now-6h",
        toggles_on=("Memory",),
    )


def _left(q: Queries, what: str, metric: str, levels: thresholds.Levels) -> Any:
    return stat_of(
        f"{what}: time left",
        "Until the first rank runs out at the present slope. Not in sight: it stays, falls, or nobody uses it.",
        SECONDS,
        Q(q.least(metric), "time left"),
        levels=levels,
        none="not in sight",
    )


def _forecast(q: Queries) -> Line:
    return Line(
        4,
        _left(q, "Memory", "trainprobe_memory_exhaustion_seconds", thresholds.MEMORY_LEFT_SECONDS),
        _left(q, "Descriptors", "trainprobe_fd_exhaustion_seconds", thresholds.FD_LEFT_SECONDS),
        _left(q, "Shared memory", "trainprobe_shm_exhaustion_seconds", thresholds.MEMORY_LEFT_SECONDS),
        stat_of(
            "Fullest memory",
            "Memory in use of its limit, of the fullest control group or host that a run is in.",
            SHARE,
            Q(f"max({q.memory_share})", "of the limit"),
            levels=thresholds.MEMORY_FILL,
            decimals=1,
        ),
        stat_of(
            "Fullest swap",
            "Swap in use, of the fullest host. Swap that is merely used does no harm; swapping in does.",
            SHARE,
            Q(f"max({q.swap_share})", "in use"),
            levels=thresholds.SWAP_FILL,
            decimals=1,
            none="no swap seen",
        ),
        stat_of(
            "OOM kills in the time range",
            "Processes of the runs killed for want of memory.",
            COUNT,
            Q(f"sum(increase(trainprobe_oom_kills_total{q.scope.run()}[{RANGE}]))", "kills"),
            levels=thresholds.COUNT_OF_FAILURES,
            decimals=0,
        ),
    )


def _ranks(q: Queries) -> Line:
    pss = f"topk(50, {q.rank('trainprobe_run_pss_bytes').expr})"
    return Line(
        9,
        table_of(
            "Ranks",
            "The 50 greatest by memory. A click on a run opens its stalls.",
            {"run": RUN_COLUMN, "rank": Column("Rank")},
            [
                (pss, Column("Memory (PSS)", BYTES)),
                (q.rank("trainprobe_run_swap_bytes").expr, Column("Swapped", BYTES)),
                (
                    q.rank_share("trainprobe_open_fds", "trainprobe_max_fds").expr,
                    Column("Descriptors", SHARE, thresholds.FD_FILL),
                ),
                (q.rank("trainprobe_run_shm_bytes").expr, Column("Shared memory", BYTES)),
                (
                    q.rank_least("trainprobe_memory_exhaustion_seconds").expr,
                    Column("Memory left for", SECONDS, thresholds.MEMORY_LEFT_SECONDS),
                ),
            ],
        ),
    )


def _until(title: str, left: Q) -> Any:
    return time_series(title, "At the present slope. No line: not in sight.", left, none="not in sight")


def _memory(q: Queries) -> list[Line]:
    return [
        Line(
            9,
            fill(
                "In use, of the limit",
                "Of the control group that limits the run, else of the host.",
                Q(q.memory_share, "{{run}} {{scope}}"),
                levels=thresholds.MEMORY_FILL,
            ),
            time_series(
                "In use and limit",
                "In bytes.",
                Q(q.memory("used"), "{{run}} {{scope}}"),
                Q(q.memory("limit"), "{{run}} {{scope}}, limit"),
                unit=BYTES,
            ),
            time_series(
                "Memory of the ranks",
                "Proportional set size of each rank with its workers: shared pages are counted once.",
                q.rank("trainprobe_run_pss_bytes"),
            ),
        ),
        Line(
            8,
            _until("Time until memory runs out", q.rank_least("trainprobe_memory_exhaustion_seconds")),
            time_series(
                "OOM kills",
                "In each interval, by where the limit was.",
                Q(
                    f"sum by (run, scope) (increase(trainprobe_oom_kills_total{q.scope.run()}[{RATE}]))",
                    "{{run}} {{scope}}",
                ),
                unit=COUNT,
            ),
            time_series(
                "Time in direct reclaim",
                "Share of the time, of the worst rank of each run.",
                q.rate("run", "trainprobe_direct_reclaim_seconds_total"),
            ),
        ),
    ]


def _swap(q: Queries) -> list[Line]:
    return rows(
        fill(
            "Swap in use, of what is there",
            "By host.",
            Q(q.swap_share, "{{instance}}"),
            levels=thresholds.SWAP_FILL,
            none="no swap seen",
        ),
        time_series(
            "Pages swapped in",
            "Each second, by host: this is what makes steps slow.",
            q.host_rate("trainprobe_swap_in_pages_total"),
            levels=thresholds.SWAP_IN_PAGES,
        ),
        time_series("Swapped memory of the ranks", "With their workers.", q.rank("trainprobe_run_swap_bytes")),
        time_series(
            "Pressure",
            "Share of the time in which some or all tasks of the host waited for memory, disks or CPUs (PSI).",
            q.host_rate("trainprobe_pressure_seconds_total", "resource", "kind"),
            levels=thresholds.PRESSURE,
        ),
        time_series(
            "Major faults",
            "Each second, of the worst rank of each run.",
            q.rate("run", "trainprobe_major_faults_total"),
        ),
        time_series(
            "Throttled by a CPU quota",
            "Share of the time, of the worst rank of each run.",
            q.rate("run", "trainprobe_cpu_throttled_seconds_total"),
        ),
    )


def _descriptors(q: Queries) -> list[Line]:
    return rows(
        fill(
            "Open, of the limit",
            "Of each rank's worst process.",
            q.rank_share("trainprobe_open_fds", "trainprobe_max_fds"),
            levels=thresholds.FD_FILL,
        ),
        _until("Time until they run out", q.rank_least("trainprobe_fd_exhaustion_seconds")),
        time_series(
            "Calls that failed for want of one",
            "In each interval, by error.",
            q.events("trainprobe_fd_errors_total", "run", "errno"),
            none="no call failed, as far as is known",
        ),
    )


def _shared_memory(q: Queries) -> list[Line]:
    return rows(
        fill(
            "/dev/shm in use, of its size",
            "Of hosts and containers.",
            Q(q.shm_share, "{{instance}} {{container}} {{device}}"),
            levels=thresholds.SHM_FILL,
        ),
        time_series("Held by the ranks", "With their workers.", q.rank("trainprobe_run_shm_bytes")),
        _until("Time until it runs out", q.rank_least("trainprobe_shm_exhaustion_seconds")),
        time_series(
            "Leaked",
            "Bytes in a /dev/shm whose owners are dead.",
            q.host("trainprobe_shm_leaked_bytes", "container"),
        ),
        time_series(
            "Allocations that failed",
            "In each interval.",
            q.events("trainprobe_shm_errors_total", "run", "rank"),
        ),
    )


def _workers(q: Queries) -> list[Line]:
    return rows(
        time_series(
            "Workers that failed",
            "In each interval, by reason.",
            q.events("trainprobe_worker_exits_total", "run", "reason", only=('reason!="finished"',)),
        ),
        time_series(
            "Memory of orphaned workers",
            "Workers whose trainer is gone, and what they hold.",
            q.host("trainprobe_orphan_worker_bytes"),
        ),
        time_series("Orphaned workers", "How many, by host.", q.host("trainprobe_orphan_workers")),
        time_series(
            "Space where the checkpoints go",
            "Left on that filesystem.",
            q.rank_least("trainprobe_checkpoint_filesystem_available_bytes"),
            none="no checkpoint seen",
        ),
        time_series(
            "Inodes where the checkpoints go",
            "Left on that filesystem.",
            q.rank_least("trainprobe_checkpoint_filesystem_files_free"),
            none="no checkpoint seen",
        ),
    )


def _gpus(q: Queries) -> list[Line]:
    return rows(gpus.memory(q), gpus.temperature(q), gpus.clock(q), gpus.throttled(q), gpus.errors(q))
