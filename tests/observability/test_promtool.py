"""promtool on what the exporter serves, in both states: all measured, and nothing measured yet."""

from __future__ import annotations

import subprocess

import pytest

from tests.unit.exporters.reports import NOW, a_full_report, a_rank, a_report, a_run
from trainprobe.model.report import Report
from trainprobe_exporters.exposition import Format, exposition
from trainprobe_exporters.families import SeriesTable

# The linter's findings that the contract's names make unavoidable, each with the reason.
EXCEPTIONS: dict[str, str] = {}


@pytest.mark.parametrize("report", [a_full_report(), a_report(a_run("r", a_rank())), a_report()])
def test_promtool_finds_nothing(report: Report) -> None:
    series = SeriesTable()
    series.fold(report)
    text = exposition(series.families(NOW, fresh=True), Format.TEXT)
    result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30, check=False)
    findings = [line for line in (result.stdout + result.stderr).decode().splitlines() if line]
    assert [line for line in findings if line.split()[0] not in EXCEPTIONS] == []
