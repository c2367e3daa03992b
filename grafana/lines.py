"""The lines of a time series by what each is (a rank, a host, a GPU, a label's value): query and name at once."""

from __future__ import annotations

from dataclasses import dataclass

from grafana.panels import BYTES, BYTES_PER_SECOND, CELSIUS, COUNT, HERTZ, SECONDS, SHARE, TIME, WATTS, Q
from grafana.scope import Scope
from trainprobe_exporters.catalogue import BY_NAME, DropPolicy

RATE = "$__rate_interval"
NO_GPU = "no GPU seen"
REPORT = 'source="daemon"'
_RATES = {"seconds": SHARE, "bytes": BYTES_PER_SECOND}
_UNITS = {
    "timestamp_seconds": TIME, "bytes_per_second": BYTES_PER_SECOND, "seconds": SECONDS, "bytes": BYTES,
    "ratio": SHARE, "watts": WATTS, "celsius": CELSIUS, "hertz": HERTZ,
}  # fmt: skip
"""By the end of a gauge's name."""


@dataclass(frozen=True)
class Lines:
    """Of one dashboard. ``what`` tells the lines of one panel's queries apart."""

    scope: Scope

    def rank(self, metric: str, what: str = "") -> Q:
        """A gauge of a rank, by rank, and by run where there may be several."""
        labels = "rank" if self.scope.one_run else "run, rank"
        return self._of_rank(f"max by ({labels}) ({metric}{self.scope.rank()})", _gauge(metric), what)

    def rank_least(self, metric: str, what: str = "") -> Q:
        """A gauge of which the least value counts; no line where it is absent."""
        return self._of_rank(f"min by (run, rank) ({metric}{self.scope.rank()})", _gauge(metric), what)

    def rank_rate(self, metric: str, what: str = "") -> Q:
        """A counter's growth each second."""
        return self._of_rank(self.rate("rank", metric).expr, _rate(metric), what)

    def rank_share(self, used: str, size: str) -> Q:
        """How full something of each rank is."""
        return self._of_rank(f"max by (run, rank) ({used}{self.scope.rank()} / {size}{self.scope.rank()})", SHARE)

    def rate(self, label: str, metric: str) -> Q:
        """A counter's growth each second, of the worst rank: one line a value of the label."""
        rates = f"max by ({label}) (rate({metric}{self.scope.rank()}[{RATE}]))"
        return Q(rates, _names(label), unit=_rate(metric))

    def events(self, metric: str, *labels: str, only: tuple[str, ...] = ()) -> Q:
        """Events of all ranks in the interval of a point; ``only`` those that match."""
        grown = self.grown(metric, self.scope.rank(*only))
        return Q(f"sum by ({', '.join(labels)}) ({grown})", _names(*labels), unit=COUNT)

    def host(self, metric: str, *labels: str, what: str = "") -> Q:
        """A gauge of a host, or of a run on it: one line a host and value of the labels."""
        return self._of_host(f"{metric}{self._selected(labels)}", _gauge(metric), labels, what)

    def host_rate(self, metric: str, *labels: str, what: str = "") -> Q:
        return self._of_host(f"rate({metric}{self._selected(labels)}[{RATE}])", _rate(metric), labels, what)

    def exporter(self, metric: str, what: str) -> Q:
        """A gauge that each program has which Prometheus scrapes: the exporters' own, whatever else is scraped."""
        values = f"{metric}{self.scope.host()} and on (job, instance) trainprobe_build_info{self.scope.host()}"
        return self._of_host(values, _gauge(metric), (), what)

    def gpu(self, metric: str, what: str = "") -> Q:
        """A gauge: one line a GPU that the chosen ranks use."""
        expr = f"max by (instance, gpu) ({metric}{self.scope.host()} {self.of_these_ranks})"
        return Q(expr, _names("instance", "gpu", what=what), unit=_gauge(metric), none=NO_GPU)

    def gpu_rate(self, metric: str, *labels: str) -> Q:
        by = ("instance", "gpu", *labels)
        rates = f"rate({metric}{self.scope.host()}[{RATE}])"
        expr = f"max by ({', '.join(by)}) ({rates} {self.of_these_ranks})"
        return Q(expr, _names(*by), unit=_rate(metric), none=NO_GPU)

    def gpu_events(self, metric: str, *labels: str) -> Q:
        """Events of the GPUs in the interval of a point."""
        by = ("instance", "gpu", *labels)
        grown = self.grown(metric, self.scope.host())
        expr = f"max by ({', '.join(by)}) (({grown}) {self.of_these_ranks})"
        return Q(expr, _names(*by), unit=COUNT, none=NO_GPU)

    def grown(self, metric: str, selector: str, window: str = RATE) -> str:
        """Growth in the window, the first event of a series that begins with it included: increase() sees nothing of
        that. Young a series is only where the daemon was heard before it."""
        series, known = f"{metric}{selector}", BY_NAME[metric]
        increase = f"increase({series}[{window}])"
        if not known.own_labels or (known.zero and known.gives_way is DropPolicy.NEVER):
            return increase
        heard = f"trainprobe_source_up{self.scope.host(REPORT)} offset {window} == 1"
        return f"({series} unless {series} offset {window} and on (job, instance) ({heard})) or {increase}"

    @property
    def of_these_ranks(self) -> str:
        """The GPUs of the ranks that are looked at."""
        return f"and on (job, instance, uuid) trainprobe_run_gpu_info{self.scope.rank()}"

    def _of_rank(self, expr: str, unit: str, what: str = "") -> Q:
        labels = ("rank",) if self.scope.one_run else ("run", "rank")
        return Q(expr, f"{what}, {_names(*labels)}" if what else _names(*labels), unit=unit)

    def _of_host(self, values: str, unit: str, labels: tuple[str, ...], what: str) -> Q:
        by = ("instance", *labels)
        return Q(f"max by ({', '.join(by)}) ({values})", _names(*by, what=what), unit=unit)

    def _selected(self, labels: tuple[str, ...]) -> str:
        return self.scope.run() if "run" in labels else self.scope.host()


def _gauge(metric: str) -> str:
    return next((unit for end, unit in _UNITS.items() if metric.endswith(f"_{end}")), COUNT)


def _rate(metric: str) -> str:
    return _RATES.get(metric.removesuffix("_total").rpartition("_")[2], COUNT)


_WORDS = {"rank": "rank ", "gpu": "GPU "}
"""Labels whose values are bare numbers."""


def _names(*labels: str, what: str = "") -> str:
    named = " ".join(f"{_WORDS.get(label, '')}{{{{{label}}}}}" for label in labels)
    return f"{named} {what}" if what else named
