"""The queries of the dashboards of many runs, timed as Grafana asks them: panels, and the variables at the top."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.observability.dashboards import dashboards, panels, with_values
from tests.observability.servers import Prometheus

DASHBOARDS = ("trainprobe-fleet", "trainprobe-goodput")
POINTS = 800  # of a panel half a screen wide
DAY = 86400
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": DAY}
TIMEOUT = 30.0


@dataclass
class Asked:
    """A query as it was asked, and how long it took until the answer was here."""

    name: str
    expr: str
    seconds: float = 0.0
    series: int = 0
    error: str = ""


def ask_all(server: Prometheus, interval: int) -> list[Asked]:
    return [
        asked
        for uid, dashboard in dashboards().items()
        if uid in DASHBOARDS
        for asked in (*_of_panels(server, uid, dashboard, interval), *_of_variables(server, uid, dashboard))
    ]


def _of_panels(server: Prometheus, uid: str, dashboard: dict[str, Any], interval: int) -> Iterator[Asked]:
    """Over the time range that the dashboard opens with."""
    seconds = _seconds(dashboard["time"]["from"].removeprefix("now-"))
    end = time.time()
    for panel in panels(dashboard):
        for target in panel["targets"]:
            least = _seconds(target.get("interval") or f"{interval}s")
            step = max(least, -(-seconds // POINTS // least) * least)
            values = _values(dashboard, seconds, step, interval)
            asked = Asked(f"{uid}: {panel['title']} ({target['refId']})", with_values(target["expr"], values))
            if target.get("instant", False):
                yield _timed(server, asked, "/api/v1/query", time=str(end))
            else:
                window = {"start": str(end - seconds), "end": str(end), "step": str(step)}
                yield _timed(server, asked, "/api/v1/query_range", **window)


def _seconds(text: str) -> int:
    return int(text[:-1]) * SECONDS[text[-1]]


def _of_variables(server: Prometheus, uid: str, dashboard: dict[str, Any]) -> Iterator[Asked]:
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert found is not None, variable
        asked = Asked(f"{uid}: variable {variable['name']}", with_values(found[1], _values(dashboard, 0, 0, 0)))
        window = {"start": str(time.time() - DAY), "end": str(time.time()), "match[]": asked.expr}
        yield _timed(server, asked, f"/api/v1/label/{found[2]}/values", **window)


def _values(dashboard: dict[str, Any], seconds: int, step: int, interval: int) -> dict[str, str]:
    """All of everything, as the dashboards open; where one run is to be chosen, none is."""
    chosen = {v["name"]: v.get("allValue") or v.get("query") for v in dashboard["templating"]["list"]}
    texts = {name: text for name, text in chosen.items() if isinstance(text, str)}
    return texts | {
        "__interval": f"{step}s",
        "__rate_interval": f"{max(step + interval, 4 * interval)}s",
        "__range": f"{seconds}s",
    }


def _timed(server: Prometheus, asked: Asked, path: str, **parameters: str) -> Asked:
    named = parameters if "match[]" in parameters else parameters | {"query": asked.expr}
    url = f"{server.url}{path}?{urllib.parse.urlencode(named)}"
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            data = json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        told = json.load(error).get("error", str(error))
        return replace(asked, seconds=time.monotonic() - begun, error=told)
    except TimeoutError:
        return replace(asked, seconds=time.monotonic() - begun, error=f"no answer in {TIMEOUT:.0f} s")
    series = data["result"] if isinstance(data, dict) else data
    return replace(asked, seconds=time.monotonic() - begun, series=len(series))
