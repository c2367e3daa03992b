"""The lines of a time series by what each is (a rank, a host, a GPU, a label's value): query and name at once."""

from __future__ import annotations

from dataclasses import dataclass

from grafana.panels import Q
from grafana.queries import Queries


@dataclass(frozen=True)
class Lines:
    """Of one dashboard. ``what`` tells the lines of one panel's queries apart."""

    queries: Queries

    def rank(self, metric: str, what: str = "") -> Q:
        """A gauge: one line a rank."""
        return self._of_rank(self.queries.by_rank(metric), what)

    def rank_least(self, metric: str, what: str = "") -> Q:
        """A gauge of which the least value counts; no line where it is absent."""
        return self._of_rank(self.queries.least_by_rank(metric), what)

    def rank_rate(self, metric: str, what: str = "") -> Q:
        """A counter's growth each second."""
        return self._of_rank(self.queries.rate_by("rank", metric), what)

    def rank_share(self, used: str, size: str) -> Q:
        """How full something of each rank is."""
        return self._of_rank(self.queries.share_by_rank(used, size))

    def rate(self, label: str, metric: str) -> Q:
        """A counter's growth each second, of the worst rank: one line a value of the label."""
        return Q(self.queries.rate_by(label, metric), _names(label))

    def events(self, metric: str, *labels: str, only: tuple[str, ...] = ()) -> Q:
        """Events of all ranks in each interval; ``only`` those that match."""
        return Q(self.queries.increase_by(", ".join(labels), metric, *only), _names(*labels))

    def host(self, metric: str, *labels: str, what: str = "") -> Q:
        """A gauge: one line a host and value of the labels."""
        return Q(self.queries.host(metric, *labels), _names("instance", *labels, what=what))

    def host_rate(self, metric: str, *labels: str, what: str = "") -> Q:
        """A counter's growth each second."""
        return Q(self.queries.host_rate(metric, *labels), _names("instance", *labels, what=what))

    def gpu(self, metric: str, what: str = "") -> Q:
        """A gauge: one line a GPU that the chosen ranks use."""
        return Q(self.queries.gpu(metric), _names("instance", "gpu", what=what))

    def gpu_rate(self, metric: str, *labels: str) -> Q:
        return Q(self.queries.gpu_rate(metric, *labels), _names("instance", "gpu", *labels))

    def _of_rank(self, expr: str, what: str = "") -> Q:
        labels = ("rank",) if self.queries.scope.one_run else ("run", "rank")
        return Q(expr, f"{what}, {_names(*labels)}" if what else _names(*labels))


_WORDS = {"rank": "rank ", "gpu": "GPU "}
"""Labels whose values are bare numbers."""


def _names(*labels: str, what: str = "") -> str:
    named = " ".join(f"{_WORDS.get(label, '')}{{{{{label}}}}}" for label in labels)
    return f"{named} {what}" if what else named
