"""A gauge is a line of the catalogue where its value is in the report already, and two more lines where it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house.copy import Copy

KNOWN = """    _gauge("open_fds_peak", _of(), "Most file descriptors that were open at once.", at_end=_GONE,
           value=OfRank(lambda r: r.fds.open_peak)),"""
NEW = """    _gauge("log_files", _of(), "Log files that the rank has written.",
           value=OfRank(lambda r: r.counters.log_files)),"""
PUBLISHED = """
from dataclasses import replace
from tests.replay.cause_pages import replayed
from trainprobe.pipeline.report.restart_merge import continued
from trainprobe_exporters.families import SeriesTable

report = replayed("logging")
(rank,) = report.runs[0].ranks
unread = replace(rank, counters=replace(rank.counters, log_files=None))
both = [continued(replace(rank, exit=None), replace(one, exit=None)) for one in (rank, unread)]
print(*{one.counters.log_files for one in both} ^ {rank.counters.log_files})
report.runs[0].ended, rank.exit = None, None
series = SeriesTable()
series.fold(report)
values = {f.metric.name: f.samples[0][1] for f in series.families(report.generated, fresh=True)}
print(values["trainprobe_log_files"] >= 1, values["trainprobe_open_fds_peak"] >= values["trainprobe_open_fds"])
"""


@pytest.mark.timeout(1800)
def test_a_gauge_is_one_line_or_three(tmp_path: Path) -> None:
    copy = Copy.into(tmp_path)
    before = other_figures(copy)
    copy.insert("exporters/trainprobe_exporters/catalogue.py", r"OfRank\(lambda r: r.counters.max_fds\)", KNOWN)
    assert len(copy.written) == 1
    copy.make("generated")
    copy.make("lint")
    drawn(copy, before, "trainprobe_open_fds_peak")

    copy.insert("exporters/trainprobe_exporters/catalogue.py", r"OfRank\(lambda r: r.counters.max_fds\)", NEW)
    copy.insert("daemon/trainprobe/model/report.py", "    max_fds: int", "    log_files: int | None = None")
    built = "        log_files=len(rank.files.logs),"
    copy.insert("daemon/trainprobe/pipeline/report/counters.py", "max_fds=max_fds", built)
    assert len(copy.written) == 3
    copy.make("generated")
    copy.check()
    drawn(copy, before, "trainprobe_open_fds_peak", "trainprobe_log_files")
    assert copy.python(PUBLISHED).split("\n")[:2] == ["", "True True"]


def other_figures(copy: Copy) -> set[str]:
    """What the row of panels that no dashboard draws by itself asks for."""
    stalls = json.loads(copy.text("grafana/dashboards/trainprobe-stalls.json"))
    rows = [panel for panel in stalls["panels"] if panel["title"] == "Other figures"]
    return {target["expr"] for row in rows for panel in row["panels"] for target in panel["targets"]}


def drawn(copy: Copy, before: set[str], *metrics: str) -> None:
    """Each on a panel of its own, and on the page of metrics."""
    added = other_figures(copy) - before
    assert len(added) == len(metrics)
    for metric in metrics:
        assert any(f"{metric}{{" in expr for expr in added)
        assert f"| `{metric}` | gauge | `run`, `rank` |" in copy.text("docs/metrics.md")
