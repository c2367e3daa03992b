"""A GPU's memory runs out: how it grows, who holds it."""

from __future__ import annotations

from collections.abc import Iterator

from trainprobe.derive.forecast import Forecast
from trainprobe.detect.limits.base import Notice, Situation, size, span
from trainprobe.model.cause import Cause
from trainprobe.model.report import Evidence
from trainprobe.model.sample import GpuHolder, LimitSample


def told(s: Situation) -> Iterator[Notice]:
    """One notice for the GPU that is full first."""
    for limit, forecast in s.of_kind("gpu"):
        if forecast is not None:
            yield _coming(s, limit, forecast)
            return


def _coming(s: Situation, limit: LimitSample, forecast: Forecast) -> Notice:
    holders = sorted(s.gpu_holders.get(limit.place, ()), key=lambda holder: -(holder.bytes or 0))
    others = [holder for holder in holders if holder.pid not in s.roles and holder.pid != s.driver]
    return Notice(
        f"gpu-memory-{limit.place}",
        Cause.GPU_MEMORY,
        s.now_ns,
        f"memory of GPU {limit.scope} grows by {size(forecast.slope)} a second: {size(limit.used)} of "
        f"{size(limit.limit)} are used, it is full in {span(forecast.eta_seconds)}",
        eta_seconds=forecast.eta_seconds,
        evidence=[
            Evidence("memory of the GPU", limit.limit, "bytes", None, limit.place),
            Evidence("of it used", limit.used, "bytes", None, limit.place),
            Evidence("growth", round(forecast.slope), "bytes/s"),
            Evidence("seen growing for", round(forecast.ramp_seconds), "s"),
            *(_held(s, holder) for holder in holders[:5] if holder.bytes is not None),
        ],
        advice=[
            "keep no tensors of past steps: losses with their graph (use .item() or .detach()), lists of outputs",
            "smaller batch; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where it is fragmented",
            *(["other processes hold memory of this GPU: end them or choose another GPU"] if others else []),
        ],
        pid=s.driver,
    )


def _held(s: Situation, holder: GpuHolder) -> Evidence:
    return Evidence(f"GPU memory of {s.who(holder.pid)}", holder.bytes, "bytes", holder.pid)
