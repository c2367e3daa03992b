"""Twenty minutes of a training on paper, told by the real exporter: what Prometheus answers to "Training stalls".

Prints JSON for page.jsx.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.observability.backfill import having_scraped
from tests.observability.dashboards import dashboards, panels, with_values
from tests.observability.servers import Prometheus
from tests.unit.exporters.reports import a_rank, a_report, a_run
from trainprobe.model.report import STALL_BUCKETS, STEP_BUCKETS, Counters, Gpu, Report, Steps
from trainprobe_exporters.catalogue import BY_NAME
from trainprobe_exporters.families import Family, SeriesTable

RUN = "train.py-3f2a91c0"
SCRAPE, SECONDS, SHOWN = 5, 1200, 1140
END = int(time.time()) // 60 * 60 - 120.0
BEGIN = END - SECONDS
STARTUP, EVALUATION = (0, 45), (860, 930)
SLOW = (560, 900)  # memory is short: some steps take longer without being stalls
STEP = 0.11
# When, how long, why; seconds since the beginning.
STALLS = (
    (130, 14, "checkpoint"), (205, 4, "cpu_bound"), (300, 26, "data_storage"), (352, 9, "data_cpu"),
    (430, 15, "checkpoint"), (505, 4.2, "cpu_bound"), (560, 33, "swap"), (640, 11, "memory_pressure"),
    (730, 14, "checkpoint"), (805, 3.8, "cpu_bound"), (980, 0.4, "logging"), (1030, 13, "checkpoint"),
    (1105, 4.1, "cpu_bound"),
)  # fmt: skip
STATES = {
    "checkpoint": "checkpoint", "cpu_bound": "compute", "data_storage": "data_wait", "data_cpu": "data_wait",
    "swap": "memory", "memory_pressure": "memory", "logging": "logging",
}  # fmt: skip


def within(at: float, span: tuple[float, float]) -> float:
    """How much of a span is over."""
    return max(0.0, min(at, span[1]) - span[0])


def stall_seconds(at: float) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for start, length, cause in STALLS:
        if start < at:
            seconds[cause] = seconds.get(cause, 0.0) + within(at, (start, start + length))
    return seconds


def report(at: float) -> Report:
    """What the daemon says ``at`` seconds after the beginning."""
    stalled, evaluated, started = stall_seconds(at), within(at, EVALUATION), within(at, STARTUP)
    ordinary = max(0.0, at - sum(stalled.values()) - evaluated - started)
    ended = [length for start, length, _ in STALLS if start + length < at]
    ledger = {"compute": 0.86 * ordinary + 0.9 * evaluated + 0.8 * started, "data_wait": 0.1 * (ordinary + started)}
    ledger |= {"logging": 0.01 * ordinary, "runqueue": 0.03 * ordinary + 0.1 * (evaluated + started)}
    for cause, seconds in stalled.items():
        ledger[STATES[cause]] = ledger.get(STATES[cause], 0.0) + seconds
    phase = "evaluation" if EVALUATION[0] <= at < EVALUATION[1] else "startup" if at < STARTUP[1] else "train"
    counters = Counters(
        phase=phase,
        phase_seconds={"startup": started, "evaluation": evaluated},
        stall_seconds=stalled,
        stalls={cause: sum(c == cause and start < at for start, _, c in STALLS) for cause in stalled},
        stall_last_start={cause: BEGIN + start for start, _, cause in STALLS if start < at},
        stall_active={cause: int(start <= at < start + length) for start, length, cause in STALLS if start < at},
        stall_durations=buckets(STALL_BUCKETS, ended),
        stall_duration_sum=sum(ended),
        step_durations=step_durations(at, ordinary, ended),
        step_duration_sum=ordinary,
        last_step=BEGIN + at - 0.05,
        baseline_seconds=STEP if ordinary else None,
    )
    steps = Steps(int(ordinary / STEP), "autograd", "", STEP, 2 * STEP, 1 / STEP, 0.06, None)
    lost = {**stalled, "data_cpu": stalled.get("data_cpu", 0.0) + 0.04 * ordinary}
    rank = a_rank("0", wall_seconds=at, productive_seconds=0.96 * ordinary, steps=steps, ledger=ledger, lost=lost,
                  gpus=[Gpu("GPU-1234", 0, 0.9, 1.0)], counters=counters)  # fmt: skip
    return a_report(a_run(RUN, rank, started=BEGIN), at=BEGIN + at)


def buckets(bounds: tuple[float, ...], values: list[float]) -> list[int]:
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return counts


def step_durations(at: float, ordinary: float, stalls: list[float]) -> list[int]:
    """Nine of ten steps below 0.1 s, the others below 0.25 s; slower ones while memory is short; and the stalled."""
    counts, count, slow = buckets(STEP_BUCKETS, stalls), ordinary / STEP, within(at, SLOW)
    for bound, more in ((0.1, 0.9 * count - 2 * slow), (0.25, 0.1 * count + 1.8 * slow), (0.5, 0.2 * slow)):
        counts[STEP_BUCKETS.index(bound)] += max(0, int(more))
    return counts


def utilization(at: float, draw: random.Random) -> float:
    if at < STARTUP[1]:
        return 0.0
    if any(start <= at < start + length for start, length, _ in STALLS):
        return draw.uniform(0.03, 0.07)
    if within(at, EVALUATION) and at < EVALUATION[1]:
        return draw.uniform(0.55, 0.6)
    return draw.uniform(0.7, 0.97) if SLOW[0] < at < SLOW[1] else draw.uniform(0.9, 0.97)


def scrapes() -> Iterator[tuple[float, list[Family]]]:
    series, draw = SeriesTable(), random.Random(7)
    gpu = BY_NAME["trainprobe_gpu_utilization_ratio"]
    for at in range(0, SECONDS + 1, SCRAPE):
        series.fold(report(float(at)))
        told = [family for family in series.families(BEGIN + at, fresh=True) if family.metric is not gpu]
        yield BEGIN + at, [*told, Family(gpu, [(("0", "GPU-1234"), round(utilization(at, draw), 3))])]


def answers(server: Prometheus) -> dict[str, Any]:
    dashboard = dashboards()["trainprobe-stalls"]
    values = {"job": ".+", "host": ".+", "run": RUN, "rank": ".+", "__interval": f"{SCRAPE}s"}
    values |= {"__rate_interval": f"{4 * SCRAPE}s", "__range": f"{SHOWN}s"}
    window = {"start": str(END - SHOWN), "end": str(END), "step": str(SCRAPE)}

    def asked(expr: str, instant: bool = False) -> Any:
        when = {"time": str(END)} if instant else window
        path = "/api/v1/query" if instant else "/api/v1/query_range"
        return server.ask(path, query=with_values(expr, values), **when)["result"]

    drawn = [a for a in dashboard["annotations"]["list"] if a["enable"] and not a["builtIn"]]
    return {
        "from": END - SHOWN,
        "to": END,
        "step": SCRAPE,
        "panels": [
            {"panel": panel, "results": [asked(t["expr"], t["instant"]) for t in panel["targets"]]}
            for panel in panels(dashboard)
        ],
        "annotations": [
            {"name": a["name"], "color": a["iconColor"], "result": asked(a["expr"])} for a in drawn
        ],
    }  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, having_scraped(Path(directory), scrapes()) as server:
        json.dump(answers(server), sys.stdout)


if __name__ == "__main__":
    main()
