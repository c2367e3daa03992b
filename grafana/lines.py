"""The lines of a time series by what each is (a rank, a host, a GPU, a label's value): query and name at once."""

from __future__ import annotations

from dataclasses import dataclass

from grafana.panels import Q
from grafana.scope import Scope

RATE = "$__rate_interval"


@dataclass(frozen=True)
class Lines:
    """Of one dashboard. ``what`` tells the lines of one panel's queries apart."""

    scope: Scope

    def rank(self, metric: str, what: str = "") -> Q:
        """A gauge of a rank, by rank, and by run where there may be several."""
        labels = "rank" if self.scope.one_run else "run, rank"
        return self._of_rank(f"max by ({labels}) ({metric}{self.scope.rank()})", what)

    def rank_least(self, metric: str, what: str = "") -> Q:
        """A gauge of which the least value counts; no line where it is absent."""
        return self._of_rank(f"min by (run, rank) ({metric}{self.scope.rank()})", what)

    def rank_rate(self, metric: str, what: str = "") -> Q:
        """A counter's growth each second."""
        return self._of_rank(self.rate("rank", metric).expr, what)

    def rank_share(self, used: str, size: str) -> Q:
        """How full something of each rank is."""
        return self._of_rank(f"max by (run, rank) ({used}{self.scope.rank()} / {size}{self.scope.rank()})")

    def rate(self, label: str, metric: str) -> Q:
        """A counter's growth each second, of the worst rank: one line a value of the label."""
        return Q(f"max by ({label}) (rate({metric}{self.scope.rank()}[{RATE}]))", _names(label))

    def events(self, metric: str, *labels: str, only: tuple[str, ...] = ()) -> Q:
        """Events of all ranks in the interval of a point; ``only`` those that match."""
        increase = f"increase({metric}{self.scope.rank(*only)}[{RATE}])"
        return Q(f"sum by ({', '.join(labels)}) ({increase})", _names(*labels))

    def host(self, metric: str, *labels: str, what: str = "") -> Q:
        """A gauge of a host, or of a run on it: one line a host and value of the labels."""
        return self._of_host(f"{metric}{self._selected(labels)}", labels, what)

    def host_rate(self, metric: str, *labels: str, what: str = "") -> Q:
        return self._of_host(f"rate({metric}{self._selected(labels)}[{RATE}])", labels, what)

    def gpu(self, metric: str, what: str = "") -> Q:
        """A gauge: one line a GPU that the chosen ranks use."""
        expr = f"max by (instance, gpu) ({metric}{self.scope.host()} {self.of_these_ranks})"
        return Q(expr, _names("instance", "gpu", what=what))

    def gpu_rate(self, metric: str, *labels: str) -> Q:
        by = ("instance", "gpu", *labels)
        rates = f"rate({metric}{self.scope.host()}[{RATE}])"
        return Q(f"max by ({', '.join(by)}) ({rates} {self.of_these_ranks})", _names(*by))

    @property
    def of_these_ranks(self) -> str:
        """The GPUs of the ranks that are looked at."""
        return f"and on (job, instance, uuid) trainprobe_run_gpu_info{self.scope.rank()}"

    def _of_rank(self, expr: str, what: str = "") -> Q:
        labels = ("rank",) if self.scope.one_run else ("run", "rank")
        return Q(expr, f"{what}, {_names(*labels)}" if what else _names(*labels))

    def _of_host(self, values: str, labels: tuple[str, ...], what: str) -> Q:
        by = ("instance", *labels)
        return Q(f"max by ({', '.join(by)}) ({values})", _names(*by, what=what))

    def _selected(self, labels: tuple[str, ...]) -> str:
        return self.scope.run() if "run" in labels else self.scope.host()


_WORDS = {"rank": "rank ", "gpu": "GPU "}
"""Labels whose values are bare numbers."""


def _names(*labels: str, what: str = "") -> str:
    named = " ".join(f"{_WORDS.get(label, '')}{{{{{label}}}}}" for label in labels)
    return f"{named} {what}" if what else named
