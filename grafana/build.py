"""Writes the dashboards that Grafana imports: ``python -m grafana.build``.

The JSON is committed, for people who only import it; a test holds that it is what this writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.across_hosts import across_hosts
from grafana.fleet import fleet
from grafana.goodput import goodput
from grafana.memory_and_limits import memory_and_limits
from grafana.others import undrawn
from grafana.training_stalls import training_stalls

DIRECTORY = Path(__file__).parent / "dashboards"
DASHBOARDS: tuple[Callable[[], Any], ...] = (training_stalls, fleet, memory_and_limits, across_hosts, goodput)


def built() -> dict[str, str]:
    """The text of each dashboard's file, by its name."""
    texts = dict(_file(build()) for build in DASHBOARDS)
    others = undrawn(texts.values())
    return texts | dict([_file(training_stalls(others))]) if others else texts


def _file(dashboard: Any) -> tuple[str, str]:
    return f"{dashboard.uid}.json", json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in built().items():
        (DIRECTORY / name).write_text(text)


if __name__ == "__main__":
    main()
