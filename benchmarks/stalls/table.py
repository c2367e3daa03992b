"""Results to the table: per cause what was right, how far off the seconds were, how soon it was known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]
COLUMNS = (
    "planted", "runs", "kinds of code", "top cause right", "right in all checks", "stalls found", "of those told, true",
    "seconds off: median, largest", "known after: median, largest",
)  # fmt: skip
"""Of the Markdown table."""
Z = 1.959964
"""Of the standard normal distribution, for 95 %."""


def wilson(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's score; (0, 1) where nothing was tried."""
    if total == 0:
        return 0.0, 1.0
    share, square = right / total, Z * Z
    centre = (share + square / (2 * total)) / (1 + square / total)
    half = Z * math.sqrt(share * (1 - share) / total + square / (4 * total * total)) / (1 + square / total)
    return max(0.0, centre - half), min(1.0, centre + half)


def median_interval(values: Sequence[float]) -> tuple[float, float, float] | None:
    """(median, low, high): 95 % by order statistics, the whole range where there are too few values for that."""
    if not values:
        return None
    ordered, count = sorted(values), len(values)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    half = Z * math.sqrt(count) / 2
    low, high = max(0, math.floor(count / 2 - half)), min(count - 1, math.ceil(count / 2 + half))
    return middle, ordered[low], ordered[high]


def summary(rows: Iterable[Json]) -> list[Json]:
    """One entry per planted cause, in the order in which they come, and "all" at the end."""
    done = [row for row in rows if not row.get("skipped")]
    causes = list(dict.fromkeys(row["cause"] for row in done))
    said = [m for row in done for m in row.get("matches", [])]
    entries = [_entry(cause, [row for row in done if row["cause"] == cause], said) for cause in causes]
    return [*entries, _entry("all", done, said)]


def _entry(cause: str, rows: Sequence[Json], said: Sequence[Json]) -> Json:
    matches = [m for row in rows for m in row.get("matches", [])]
    planted = [m for m in matches if m["count"]]
    named = [m for m in planted if m["named"]]
    if cause == "all":
        claimed = [m for m in said if m["said"]]
        true = [m for m in claimed if m["named"]]
    else:
        claimed = [m for m in said if cause in m["said"]]
        true = [m for m in claimed if m["cause"] == cause]
    return {
        "cause": cause,
        "runs": len(rows),
        "top": sum(bool(row.get("top")) for row in rows),
        "right": sum(bool(row.get("right")) for row in rows),
        "found": len(named),
        "planted": len(planted),
        "close": sum(m["close"] for m in named),
        "true": len(true),
        "claimed": len(claimed),
        "errors": [abs(m["reported"] - m["planted"]) for m in named],
        "relative": [abs(m["reported"] - m["planted"]) / m["planted"] for m in named],
        "times": [time for row in rows for time in row.get("verdict_times", []) if time is not None],
    }


def macro_f1(rows: Iterable[Json]) -> float | None:
    """Mean over the causes of the F1 of the verdict's cause, clean runs a class of their own; None without runs.

    Runs with two causes have no class of their own and are left out.
    """
    pairs = []
    for row in rows:
        if row.get("skipped") or row["cause"] == "two":
            continue
        planted = "none" if row["kind"] == "none" else row["cause"]
        said = row.get("said", [None, None])[1] or "none"
        pairs.append((planted, planted if row.get("top") else said))
    scores = []
    for cause in {planted for planted, _ in pairs}:
        right = sum(planted == said == cause for planted, said in pairs)
        wrong = sum((planted == cause) != (said == cause) for planted, said in pairs)
        scores.append(2 * right / (2 * right + wrong))
    return sum(scores) / len(scores) if scores else None


def markdown(rows: Sequence[Json]) -> str:
    """The table as Markdown, with the kinds of training code that each cause was planted in."""
    lines = [
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    done = [row for row in rows if not row.get("skipped")]
    for entry in summary(rows):
        cause = entry["cause"]
        name = cause if cause == "all" else f"`{cause}`"
        styles = len({row["style"] for row in done if cause in ("all", row["cause"])})
        cells = [name, entry["runs"], styles, entry["top"], entry["right"]]
        if cause == "all":
            cells[3:] = [_of(entry["top"], entry["runs"]), _of(entry["right"], entry["runs"])]
        cells.append(f"{entry['found']} of {entry['planted']}" if entry["planted"] else "")
        cells.append(f"{entry['true']} of {entry['claimed']}" if entry["claimed"] else "")
        cells += [_plain_errors(entry["errors"]), _plain_times(entry["times"])]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    score = macro_f1(rows)
    return "\n".join([*lines, "", f"Macro-F1 of the verdict's cause: {score:.3f}." if score is not None else ""])


def _of(right: int, total: int) -> str:
    low, high = wilson(right, total)
    return f"{right} of {total} ({100 * low:.0f} to {100 * high:.0f} %)"


def _plain_errors(errors: Sequence[float]) -> str:
    told = median_interval(errors)
    return "" if told is None else f"{1000 * told[0]:.0f} ms, {1000 * max(errors):.0f} ms"


def _plain_times(times: Sequence[float]) -> str:
    told = median_interval(times)
    return "" if told is None else f"{told[0]:.2f} s, {max(times):.2f} s"


def render(rows: Sequence[Json]) -> str:
    """The table as text, every share with its 95 % interval."""
    head = (
        "planted",
        "runs",
        "top cause right",
        "all checks",
        "stalls found",
        "precision",
        "seconds off",
        "known after",
    )
    body = [
        (
            entry["cause"],
            str(entry["runs"]),
            _share(entry["top"], entry["runs"]),
            _share(entry["right"], entry["runs"]),
            _share(entry["found"], entry["planted"]),
            _share(entry["true"], entry["claimed"]),
            _errors(entry),
            _times(entry["times"]),
        )
        for entry in summary(rows)
    ]
    widths = [max(len(row[column]) for row in (head, *body)) for column in range(len(head))]
    told = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in (head, *body)]
    lines = [
        "Shares with their 95 % intervals; seconds off: median (95 % interval), largest, largest share;",
        "known after: time from passing the stall limit (from the death) to the verdict, median, largest.",
        "",
        told[0],
        "-" * max(len(line) for line in told),
        *told[1:],
    ]
    skipped = [row for row in rows if row.get("skipped")]
    lines += [f"skipped {row['key']}: {row['skipped']}" for row in skipped]
    return "\n".join(lines)


def _share(right: int, total: int) -> str:
    if total == 0:
        return "-"
    low, high = wilson(right, total)
    return f"{right}/{total} ({100 * low:.0f}-{100 * high:.0f} %)"


def _errors(entry: Json) -> str:
    told = median_interval(entry["errors"])
    if told is None:
        return "-"
    middle, low, high = (1000 * value for value in told)
    most, share = 1000 * max(entry["errors"]), 100 * max(entry["relative"])
    return f"{middle:.0f} ms ({low:.0f}-{high:.0f}), {most:.0f} ms, {share:.0f} %"


def _times(times: Sequence[float]) -> str:
    told = median_interval(times)
    return "-" if told is None else f"{1000 * told[0]:.0f} ms, {1000 * max(times):.0f} ms"
