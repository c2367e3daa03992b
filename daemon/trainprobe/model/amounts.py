"""Formats amounts with their units."""

from __future__ import annotations

SENSIBLE = 1e9  # a larger value is a wrong measurement; it is printed short


def seconds(value: float) -> str:
    """A duration for people: 1.4 ms, 412 ms, 12.3 s, 5 min 12 s, 3 h 12 min."""
    if not 0 <= value < SENSIBLE:
        return f"{value:.3g} s"
    if value < 0.9995:
        if value == 0 or value >= 0.00995:
            return f"{value * 1000:.0f} ms"
        return f"{value * 1000:.1f} ms" if value >= 0.0009995 else f"{value * 1e6:.0f} us"
    if value < 120:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(value: float) -> str:
    """Bytes for people: 340 MB, 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if value >= 99.5 or unit == "B" else f"{value:.1f} {unit}"


def three_digits(value: float) -> str:
    """Bytes in decimal units, three digits: 340 MB, 1.23 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.3g} {unit}"


def span(value: float) -> str:
    """Seconds of a forecast, without false precision: < 1 s, 40 s, 12 min, 3.5 h."""
    if value < 1:
        return "< 1 s"
    if value < 100:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 5400 else f"{value / 3600:.1f} h"


def percent(share: float) -> str:
    value = 100 * share
    if not abs(value) < SENSIBLE:
        return f"{value:.3g} %"
    return f"{value:.0f} %" if value >= 99.95 or value == 0 else f"{value:.1f} %"
