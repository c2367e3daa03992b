"""Every query of every dashboard on a real Prometheus that holds what the real exporter tells: no error, not empty."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from grafana.rules.build import GROUPS
from grafana.rules.recording import LATE, LATE_CAUSE
from tests.observability.backfill import TARGET, having_scraped
from tests.observability.dashboards import OF_SUMS, Asked, annotation_queries, dashboards, panel_queries, with_values
from tests.observability.servers import Prometheus
from tests.unit.exporters.everything import everything_told
from tests.unit.exporters.reports import a_full_report
from trainprobe.model.cause import LOST
from trainprobe_exporters.families import Family
from trainprobe_exporters.readings import Histogram

SECONDS, SCRAPE = 1800, 15
END = (int(time.time()) - 60) // SECONDS * float(SECONDS)  # where windows of rules end, those of 5 minutes too
START = END - SECONDS
RUN = a_full_report().runs[0].run
VALUES = {
    "job": ".+",
    "host": ".+",
    "run": RUN,
    "rank": ".+",
    "namespace": ".*",
    "pod": ".*",
    "slurm_job": ".*",
    "user": ".*",
    "price": "2.50",
    "__interval": f"{SCRAPE}s",
    "__rate_interval": f"{4 * SCRAPE}s",
    "__range": f"{SECONDS}s",
}


def scrapes() -> Iterator[tuple[float, list[Family]]]:
    """All metrics of the catalogue, with counters that grow from 0 to what they are at the end."""
    told = everything_told()
    for at in range(int(START), int(END) + 1, SCRAPE):
        yield at, [_at(family, (at - START) / SECONDS, at) for family in told]


def _at(family: Family, share: float, at: float) -> Family:
    metric = family.metric
    if metric.name.endswith("_timestamp_seconds"):
        return Family(metric, [(labels, at - 1.0) for labels, _ in family.samples])
    if metric.name == "trainprobe_phase_active":
        now = "evaluation" if 0.4 < share < 0.6 else "train"
        return Family(metric, [(labels, float(labels[-1] == now)) for labels, _ in family.samples])
    if metric.type == "gauge":
        return family
    return Family(metric, [(labels, _part(value, share)) for labels, value in family.samples])


def _part(value: float | Histogram, share: float) -> float | Histogram:
    if isinstance(value, Histogram):
        return Histogram(tuple(int(count * share) for count in value.counts), value.sum * share)
    return value * share


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with having_scraped(tmp_path_factory.mktemp("dashboards"), scrapes()) as running:
        yield running


def without_rules(query: str) -> str:
    """The query with what the recording rules record in place of its name; no rule runs on this server."""
    for _, interval, recordings in reversed(GROUPS):
        step = f"{min(seconds_of(interval or '1m'), SECONDS)}s"
        for rule in reversed(recordings):
            name = rf"(?<![\w:]){rule.record}(?:\{{[^}}]*\}})?(?![\w:])(?:\[(\w+)\])?"
            query = re.sub(name, partial(_written_out, rule.expr, step), query)
    return query


def _written_out(expr: str, step: str, found: re.Match[str]) -> str:
    return f"({expr})[{found[1]}:{step}]" if found[1] else f"({expr})"


def seconds_of(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def answer(server: Prometheus, asked: Asked) -> list[dict[str, object]]:
    query = without_rules(with_values(asked.expr, VALUES))
    if asked.instant:
        result = server.ask("/api/v1/query", query=query, time=str(END))["result"]
    else:
        step = max(SCRAPE, min(seconds_of(asked.interval or "1s"), SECONDS))
        window = {"start": str(START), "end": str(END), "step": str(step)}
        result = server.ask("/api/v1/query_range", query=query, **window)["result"]
    assert isinstance(result, list)
    return result


@pytest.mark.parametrize("asked", list(panel_queries()), ids=str)
def test_each_query_of_a_panel_has_an_answer(server: Prometheus, asked: Asked) -> None:
    """Those may be empty of which there is none here: a late rank (`test_rules.py` has one), a week before."""
    may_be_empty = asked.expr.startswith((f"{LATE}{{", f"{LATE_CAUSE}{{")) or "offset 7d" in asked.expr
    assert answer(server, asked) or may_be_empty, asked.expr


def test_the_toggles_together_draw_every_cause_that_stalled(server: Prometheus) -> None:
    drawn: dict[str, set[str]] = {}
    for asked in annotation_queries():
        causes = {str(series["metric"].get("cause")) for series in answer(server, asked)}  # type: ignore[attr-defined]
        if not asked.of.endswith(("Phases", "Exact starts")):
            drawn.setdefault(asked.dashboard, set()).update(causes)
        else:
            assert causes, asked
    stalled = set(server.vector("trainprobe_stall_seconds_total > 0", "cause", at=END))
    assert stalled
    assert drawn == dict.fromkeys(dashboards().keys() - {OF_SUMS}, stalled)


def test_each_variable_has_values(server: Prometheus) -> None:
    for uid, dashboard in dashboards().items():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] != "query":
                continue
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert found, variable
            selector = with_values(found[1], VALUES)
            window = {"start": str(START), "end": str(END)}
            values = server.ask(f"/api/v1/label/{found[2]}/values", **window, **{"match[]": selector})
            expected = {
                "job": [TARGET["job"]], "host": [TARGET["instance"]], "run": [RUN], "rank": ["0", "1"],
                "namespace": ["team-a"], "pod": ["trainer-0"], "slurm_job": ["77.0"], "user": ["ann"],
            }  # fmt: skip
            assert values == expected[variable["name"]], (uid, variable["name"])


def test_every_cause_of_lost_time_has_its_counter(server: Prometheus) -> None:
    """What the toggles read is there for every cause from the first scrape on."""
    at_start = server.vector("max by (cause) (trainprobe_stall_seconds_total)", "cause", at=START)
    assert at_start == dict.fromkeys(map(str, LOST), 0.0)


@pytest.mark.parametrize(
    ("uid", "title", "labels", "value"),
    [
        ("trainprobe-stalls", "Main cause", {"cause": "data_cpu"}, 2.5),
        ("trainprobe-stalls", "Lost", {}, 4.0 / 1000),
        ("trainprobe-stalls", "Productive", {}, 0.5),
        ("trainprobe-stalls", "Stalled now", {"cause": "checkpoint"}, 1),
        ("trainprobe-stalls", "Phase", {"phase": "train"}, 1),
        ("trainprobe-stalls", "Since the last step", {}, 1.0),
        ("trainprobe-stalls", "Ordinary step", {}, 0.1),
        ("trainprobe-fleet", "Runs", {}, 1),
        ("trainprobe-fleet", "Ranks", {}, 2),
        ("trainprobe-fleet", "GPU-hours lost", {}, 2 * 4.0 / 3600),
        ("trainprobe-fleet", "Silent hosts", {}, 0),
        ("trainprobe-fleet", "Lost of the wall time", {}, 4.0 / 1000),
        ("trainprobe-goodput", "GPU-hours not productive", {}, 2 * 70.0 / 3600),
        ("trainprobe-goodput", "Price of these", {}, 2.5 * 2 * 70.0 / 3600),
        ("trainprobe-goodput", "Productive", {}, (500 - 7) / (500 - 7 + 70)),
        ("trainprobe-memory", "Fullest memory", {}, 0.75),
    ],
)
def test_figures_are_those_of_the_report(
    server: Prometheus, uid: str, title: str, labels: dict[str, str], value: float
) -> None:
    (asked,) = [asked for asked in panel_queries() if (asked.dashboard, asked.of) == (uid, f"{title} (A)")]
    (series,) = answer(server, asked)
    assert series["metric"] == labels
    assert float(series["value"][1]) == pytest.approx(value, rel=0.02)  # type: ignore[index]


def test_the_straggler_is_the_rank_that_the_others_wait_for(server: Prometheus) -> None:
    (asked,) = [asked for asked in panel_queries() if asked.of == "Straggler ranks (A)"]
    (series,) = answer(server, asked)
    assert series["metric"]["rank"] == "0"  # type: ignore[index]
    assert float(series["values"][-1][1]) == pytest.approx((400 - 10) / 1000, rel=0.02)  # type: ignore[index]


@pytest.mark.parametrize(
    ("title", "label", "word"),
    [("Main cause", "cause", "nothing lost"), ("Stalled now", "cause", "no"), ("Phase", "phase", "ended")],
)
def test_nothing_is_said_only_where_somebody_would_know(server: Prometheus, title: str, label: str, word: str) -> None:
    """Without a report there is no answer at all: the panel then says that nobody knows."""
    (asked,) = [asked for asked in panel_queries() if asked.of == f"{title} (A)"]
    expr = asked.expr.replace("== 1", "== 3").replace("> 0)", "> 10^9)")  # as if nothing had happened
    known = answer(server, replace(asked, expr=expr))
    assert [series["metric"] for series in known] == [{label: word}]
    assert answer(server, replace(asked, expr=expr.replace('job=~"$job"', 'job="gone"'))) == []
