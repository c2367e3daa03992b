"""What a scrape told, as (metric, labels) -> value: read back from the text by prometheus_client's own parsers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from trainprobe_exporters.exposition import Format, exposition
from trainprobe_exporters.families import Family, SeriesTable
from trainprobe_exporters.readings import Histogram

Labels = frozenset[tuple[str, str]]


class Told(dict[tuple[str, Labels], float]):
    """Samples by name and labels; a sample told twice is an error."""

    def of(self, name: str, **labels: str) -> float | None:
        """The value of exactly this series; None if it is absent."""
        return self.get((name, frozenset(labels.items())))

    def all(self, name: str, **labels: str) -> dict[Labels, float]:
        """All series of this name that have at least these labels."""
        return {key[1]: value for key, value in self.items() if key[0] == name and labels.items() <= set(key[1])}

    def label_values(self, label: str, name: str) -> set[str]:
        return {dict(labels)[label] for labels in self.all(name)}


def told(text: bytes, form: Format = Format.TEXT) -> Told:
    read = read_openmetrics if form is Format.OPENMETRICS else read_text
    out = Told()
    for family in read(text.decode()):
        for sample in family.samples:
            # Prometheus takes an empty label for none.
            key = (sample.name, frozenset((k, v) for k, v in sample.labels.items() if v))
            assert key not in out, f"told twice: {key}"
            out[key] = sample.value
    return out


def told_by(families: Iterable[Family]) -> Told:
    return told(exposition(families, Format.TEXT))


def told_now(series: SeriesTable, now: float, *, fresh: bool = True) -> Told:
    return told_by(series.families(now, fresh=fresh))


def held_now(series: SeriesTable, now: float) -> Told:
    """The same samples without the text, which takes the parser a tenth of a second: for tests that ask often."""
    out = Told()
    for family in series.families(now, fresh=True):
        metric = family.metric
        for values, value in family.samples:
            labels = {(k, v) for k, v in zip(metric.labels + metric.optional_labels, values) if v}
            if not isinstance(value, Histogram):
                assert (metric.name, frozenset(labels)) not in out, f"told twice: {metric.name} {labels}"
                out[metric.name, frozenset(labels)] = value
                continue
            for bound, count in zip([*map(str, metric.buckets), "+Inf"], accumulate(value.counts)):
                out[f"{metric.name}_bucket", frozenset({*labels, ("le", bound)})] = count
            out[f"{metric.name}_count", frozenset(labels)] = sum(value.counts)
            out[f"{metric.name}_sum", frozenset(labels)] = value.sum
    return out
