"""Panels of GPUs that more than one dashboard has: what they lack, and what slows them down."""

from __future__ import annotations

from typing import Any

from grafana import thresholds
from grafana.panels import Q, fill, time_series
from grafana.queries import Queries


def memory(q: Queries) -> Any:
    return fill(
        "GPU memory, of what is there",
        "Allocated by anybody. Full and churning: see cudaMalloc in the stalls of cause gpu_memory.",
        Q(q.gpu_memory_share, "{{instance}} GPU {{gpu}}"),
        none="no GPU seen",
    )


def clock(q: Queries) -> Any:
    return time_series(
        "SM clock",
        "A clock that falls under load is throttling.",
        q.gpu("trainprobe_gpu_sm_clock_hertz"),
    )


def throttled(q: Queries) -> Any:
    return time_series(
        "Throttled",
        "Share of the time with a lowered clock, by reason.",
        q.gpu_rate("trainprobe_gpu_throttled_seconds_total", "reason"),
        none="no GPU seen, or never throttled",
    )


def temperature(q: Queries) -> Any:
    return time_series(
        "Temperature",
        "Of each GPU.",
        q.gpu("trainprobe_gpu_temperature_celsius"),
        levels=thresholds.GPU_CELSIUS,
    )


def errors(q: Queries) -> Any:
    return time_series(
        "GPU errors",
        "Xid events, ECC errors and lost devices, in each interval.",
        q.gpu_events("trainprobe_gpu_errors_total", "kind", "code"),
        none="no GPU seen, or no error",
    )
