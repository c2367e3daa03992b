"""Writes the dashboards that Grafana imports: ``python -m grafana.build``.

The JSON is committed, for people who only import it; a test holds that it is what this writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana.fleet import fleet
from grafana.memory_and_limits import memory_and_limits
from grafana.training_stalls import training_stalls

DIRECTORY = Path(__file__).parent / "dashboards"
DASHBOARDS: tuple[Callable[[], Any], ...] = (training_stalls, fleet, memory_and_limits)


def built() -> dict[str, str]:
    """The text of each dashboard's file, by its name."""
    dashboards = [build() for build in DASHBOARDS]
    return {f"{d.uid}.json": json.dumps(d, cls=JSONEncoder, indent=2, sort_keys=True) + "\n" for d in dashboards}


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in built().items():
        (DIRECTORY / name).write_text(text)


if __name__ == "__main__":
    main()
