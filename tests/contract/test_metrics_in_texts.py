"""Documents, runbooks, rules' tests and programs name only metrics, labels and label values that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from grafana.rules.build import GROUPS
from trainprobe_exporters.catalogue import BY_NAME, Metric

ROOT = Path(__file__).parents[2]
PATTERNS = ("*.md", "docs/**/*.md", "grafana/rules/tests/*.yml", "grafana/rules/*.yml", "systemd/slurm/*")
TEXTS = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.is_file())
RECORDED = {one.record for _, _, recordings in GROUPS for one in recordings}
SERIES = re.compile(
    r"(?<![\w.:/-])((?:[a-z_]+:)?trainprobe_[a-z0-9_]*[a-z0-9](?::\w+)?)(?![\w*.(:]|\{\{)(?:\{([^{}]*)\})?"
)
MATCHER = re.compile(r'(\w+) *(?:=~|!=|!~|=) *"([^"$%{]*)"')
PARTS = re.compile(r"_(bucket|sum|count)$")
NO_METRICS = {"trainprobe_exporters", "trainprobe_recording"}  # a package, a key of recordings


def wrong(text: str) -> Iterator[str]:
    for name, matchers in SERIES.findall(text):
        metric = BY_NAME.get(name) or BY_NAME.get(PARTS.sub("", name))
        if metric is None:
            if name not in RECORDED | NO_METRICS:
                yield name
            continue
        for label, values in MATCHER.findall(matchers):
            yield from (f"{name}{{{label}={value}}}" for value in values.split("|") if not has(metric, label, value))


def has(metric: Metric, label: str, value: str) -> bool:
    if label in metric.values:
        return value in (*metric.values[label], "")
    return label in ("job", "instance", "le", *metric.labels, *metric.optional_labels)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_text_names_there_is(path: Path) -> None:
    assert list(wrong(path.read_text())) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`trainprobe_lost_second_total`", ["trainprobe_lost_second_total"]),
        ('rate(trainprobe_lost_seconds_total{reason="x"}[5m])', ["trainprobe_lost_seconds_total{reason=x}"]),
        ('trainprobe_phase_active{phase=~"train|pause"}', ["trainprobe_phase_active{phase=pause}"]),
        ("run:trainprobe_lost_ratio:max_rate9h", ["run:trainprobe_lost_ratio:max_rate9h"]),
        ('trainprobe_step_duration_seconds_bucket{run="r",le="+Inf"} run:trainprobe_lost_ratio:max_rate1h', []),
        ("`trainprobe_gpu_*`, trainprobe_exporters, trainprobe_(step|stall)_duration_seconds_.*", []),
    ],
)
def test_it_sees_what_there_is_not(text: str, found: list[str]) -> None:
    assert list(wrong(text)) == found
