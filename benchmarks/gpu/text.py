"""The report of the kit for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def told(report: Json) -> str:
    lines = [f"{name:<12}{value}" for name, value in report["facts"].items() if value]
    lines.append(f"{'took':<12}{report['seconds']:.0f} s")
    for name, part in report["parts"].items():
        state = "FAILED" if part["error"] else "DIFFERS" if part["wrong"] else "ok"
        lines += ["", f"{name} ({part['seconds']:.0f} s): {state}"]
        lines += [f"  ! {line}" for line in ([part["error"]] if part["error"] else part["wrong"])]
        if not part["error"]:
            lines += [f"  {line}" for line in _figures(part)]
    return "\n".join(lines) + "\n"


def _figures(part: Json) -> Iterator[str]:
    for finding in part.get("findings", ()):
        yield f"{finding['state']:<9}{finding['name']:<16}{finding['what']}"
    for index, gpu in part.get("gpus", {}).items():
        for name, one in gpu["fields"].items():
            yield f"GPU {index} {name:<30} {one['ours']!s:<44} {one['theirs']!s:<44} {one['verdict']}"
    for path, names in part.get("libraries", {}).items():
        yield f"{path} has {', '.join(names.get('has', ())) or 'nothing'}"
        yield f"    lacks {', '.join(names.get('lacks', ())) or names.get('unreadable') or 'nothing'}"
    if "causes" in part:
        yield part["verdict"]
        yield f"{'cause':<20}{'planted':>9}{'lost':>9}{'GPU idle':>10}{'told':>9}   s"
    for cause, row in part.get("causes", {}).items():
        yield f"{cause:<20}{row['planted']:9.2f}{row['lost']:9.2f}{row['idle']:10.2f}{row['idle_told']:9.2f}"
    for way, one in part.get("step_ms", {}).items():
        yield f"{way:<10}{one['median']:9.3f} ms a step ({one['low']:.3f} to {one['high']:.3f})"
    shown = ("findings", "gpus", "libraries", "causes", "step_ms", "verdict", "wrong", "error", "seconds")
    for name, value in part.items():
        if name not in shown and value is not None:
            yield f"{name}: {json.dumps(value)}"
