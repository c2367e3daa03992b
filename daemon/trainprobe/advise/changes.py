"""Collects the advice that a report has, by cause. Each cause's file in ``causes`` makes its own."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.model.message import Message
from trainprobe.model.report import Bottleneck, Change, Rank, Stall, Warning_


def changes_of(rank: Rank) -> dict[str, list[str]]:
    """By cause, nothing twice; stalls of one cause may differ in it."""
    seen: dict[str, list[Message | str]] = {}
    out: dict[str, list[str]] = {}
    items: list[Change | Warning_ | Bottleneck | Stall] = [
        *rank.changes, *rank.warnings, *rank.bottlenecks, *reversed(rank.stalls)
    ]  # fmt: skip
    for item in items:
        known = seen.setdefault(item.cause, [])
        messages: Sequence[Message | str] = item.advice_messages or item.advice
        for advice, message in zip(item.advice, messages):
            if message not in known:
                known.append(message)
                out.setdefault(item.cause, []).append(advice)
    return out
