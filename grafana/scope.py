"""Which series the queries select: the variables at the top of a dashboard, as matchers.

Each selector names job and host, so that a panel never mixes two Prometheus jobs that scrape the same exporters.
"""

from __future__ import annotations

from dataclasses import dataclass

_HOST = ('job=~"$job"', 'instance=~"$host"')


@dataclass(frozen=True)
class Scope:
    """A dashboard's choice of runs: one (``$run`` as it is) or several (``$run`` as a regular expression)."""

    one_run: bool = False

    def host(self, *more: str) -> str:
        """Selector for series of a host; ``more`` are further matchers."""
        return _braces(*_HOST, *more)

    def run(self, *more: str) -> str:
        """Selector for series that carry ``run``."""
        return _braces(*_HOST, self._run, *more)

    def rank(self, *more: str) -> str:
        """Selector for series that carry ``run`` and ``rank``."""
        return _braces(*_HOST, self._run, 'rank=~"$rank"', *more)

    @property
    def _run(self) -> str:
        # A single choice is not escaped for regular expressions by Grafana, and script names hold dots and pluses.
        return 'run="$run"' if self.one_run else 'run=~"$run"'


def _braces(*matchers: str) -> str:
    return "{" + ",".join(matchers) + "}"
