"""Writes the rule files and docs/alerts.md: ``python -m grafana.rules.build``.

The files are committed, for people who only load them; a test holds that they are what this writes. With
``--grafana URL``, ``--runbooks URL`` and ``-o DIRECTORY`` it writes rules whose links lead to your own servers.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from grafana.rules.alerts import ALERTS, GOODPUT, HOSTS, STALLS, Alert
from grafana.rules.hours import ACCOUNTS, HOURS
from grafana.rules.recording import RECORDINGS, Recording
from grafana.rules.thresholds import ACCOUNT_WINDOW, EVENT_WINDOW, HOURS_WINDOW

ROOT = Path(__file__).parents[2]
DIRECTORY = Path(__file__).parent
PAGE = ROOT / "docs" / "alerts.md"
GRAFANA = "http://localhost:3000"
RUNBOOKS = "docs/runbooks"

_HEAD = "# Generated: .venv/bin/python -m grafana.rules.build; limits: grafana/rules/thresholds.py\n"


GROUPS: tuple[tuple[str, str, tuple[Recording, ...]], ...] = (
    ("trainprobe-recording", "", RECORDINGS),
    ("trainprobe-hours", HOURS_WINDOW, HOURS),
    ("trainprobe-accounts", ACCOUNT_WINDOW, ACCOUNTS),
)
"""Groups of recording rules, each resting on those before it: name, interval ("": the server's), rules."""


class _Dumper(yaml.SafeDumper):
    """Expressions of several lines as they would be written by hand."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


@dataclasses.dataclass(frozen=True)
class Links:
    """Where the links of an alert lead: base addresses without a slash at the end."""

    grafana: str = GRAFANA
    runbooks: str = RUNBOOKS

    def of(self, alert: Alert) -> dict[str, str]:
        return {
            "runbook_url": f"{self.runbooks}/{alert.name}.md",
            "dashboard_url": f"{self.grafana}/d/{alert.dashboard}?{_choice(alert)}",
        }


def built(links: Links | None = None) -> Mapping[str, str]:
    """The text of each rule file, by its name."""
    recording = [
        {
            "name": name,
            **({"interval": interval} if interval else {}),
            "rules": [{"record": one.record, "expr": one.expr} for one in recordings],
        }
        for name, interval, recordings in GROUPS
    ]
    alerting = [
        {"name": f"trainprobe-{topic}", "rules": [_rule(alert, links or Links()) for alert in alerts]}
        for topic, alerts in ALERTS.items()
    ]
    return {"recording.yml": _file(recording), "alerts.yml": _file(alerting)}


def page() -> str:
    """docs/alerts.md."""
    every = [alert for alerts in ALERTS.values() for alert in alerts]
    rows = "\n".join(
        dict.fromkeys(f"| [{a.name}](runbooks/{a.name}.md) | {a.severity} | {a.lasting or 'at once'} |" for a in every)
    )
    recordings = "\n".join(
        f"| `{r.record}` | {f'each {interval}' if interval else ''} | {r.meaning} |"
        for _, interval, recordings in GROUPS
        for r in recordings
    )
    return _PAGE.format(alerts=rows, recordings=recordings, event_window=EVENT_WINDOW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grafana", default=GRAFANA, metavar="URL", help="default: %(default)s")
    parser.add_argument("--runbooks", default=RUNBOOKS, metavar="URL", help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, default=DIRECTORY, metavar="DIRECTORY")
    given = parser.parse_args()
    for name, text in built(Links(given.grafana.rstrip("/"), given.runbooks.rstrip("/"))).items():
        (given.output / name).write_text(text)
    if given.output == DIRECTORY:
        PAGE.write_text(page())


def _rule(alert: Alert, links: Links) -> dict[str, Any]:
    rule: dict[str, Any] = {"alert": alert.name, "expr": alert.expr}
    if alert.lasting:
        rule["for"] = alert.lasting
    rule["labels"] = {"severity": alert.severity, **alert.labels}
    rule["annotations"] = {"summary": alert.summary, "description": alert.description, **links.of(alert)}
    return rule


def _choice(alert: Alert) -> str:
    """The dashboard's variables, from the alert's labels."""
    labels = {"job": "job"}
    if alert.dashboard != GOODPUT:
        labels["host"] = "instance"
    if alert.dashboard in (STALLS, HOSTS):
        labels["run"] = "run"
    chosen = (f"var-{variable}={{{{ $labels.{label} | urlquery }}}}" for variable, label in labels.items())
    since = "now-7d" if alert.dashboard == GOODPUT else "now-1h"
    return "&".join([f"from={since}", "to=now", *chosen])


def _file(groups: list[dict[str, Any]]) -> str:
    return _HEAD + yaml.dump({"groups": groups}, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)


_PAGE = """\
# Alerts

<!-- Generated: .venv/bin/python -m grafana.rules.build -->

Load both files of `grafana/rules/` (in the Debian package `/usr/share/trainprobe/grafana/rules/`) into Prometheus:

```yaml
rule_files: [recording.yml, alerts.yml]      # in prometheus.yml
```

[`grafana/rules/alertmanager.yml`](../grafana/rules/alertmanager.yml) is an example for Alertmanager with routes by
severity and inhibitions. A target that is down has only the labels of its scrape, so its job must be called
`trainprobe` or `trainprobe-…`. Links lead to your own Grafana and runbooks after

```
.venv/bin/python -m grafana.rules.build --grafana https://grafana.example --runbooks https://docs.example -o DIRECTORY
```

- A run is judged by its **worst rank**, never by the sum over ranks. Shares exclude `run="other"`, a sum over runs.
- They hold at a **scrape interval of 60 s**. Events are counted over {event_window}, also those of a run that died
  before its second scrape.
- **Silence is no alert**: what was not measured (no swap, no limit, no GPU) fires nothing. TrainprobeDown and
  TrainprobeDegraded report that the measuring has stopped.
- `critical`: the training stands still, dies, or loses what it would resume from. `warning`: it loses time or comes
  near a limit. `info`: trainprobe itself.

Conditions: [`alerts.yml`](../grafana/rules/alerts.yml). Limits and their reasons:
[`thresholds.py`](../grafana/rules/thresholds.py). [`tests`](../grafana/rules/tests), run by `promtool test rules`,
hold that every alert is silent just before its limit, fires just after, and is silent on healthy look-alikes.

| alert, runbook | severity | after |
|---|---|---|
{alerts}

## Recording rules

| series | recorded | meaning |
|---|---|---|
{recordings}
"""


if __name__ == "__main__":
    main()
