"""A GPU's memory runs out, or has run out: how it grows, who holds it, what was refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainprobe.derive.forecast import Forecast
from trainprobe.detect.limits.base import Notice, Situation, size, span
from trainprobe.model.cause import Cause
from trainprobe.model.event import CallFailed
from trainprobe.model.report import Evidence
from trainprobe.model.sample import GpuHolder, LimitSample

CALL = "cudaMalloc"
REFUSED = "gpu-memory-refused"


def told(s: Situation) -> Iterator[Notice]:
    """One notice about what was refused, one for the GPU that is full first."""
    refused = [failed for failed in s.failures if failed.call == CALL]
    if refused:
        yield from _refused(s, refused)
    for limit, forecast in s.of_kind("gpu"):
        if forecast is not None:
            yield _coming(s, limit, forecast)
            return


def _refused(s: Situation, refused: Sequence[CallFailed]) -> Iterator[Notice]:
    """The end of the training, if no step comes after it; otherwise the allocator has helped itself."""
    last = refused[-1]
    limit = s.fullest("gpu")
    evidence = [Evidence("allocations refused (cudaMalloc: out of memory)", last.count, "", last.pid)]
    if limit is not None:
        evidence += [
            Evidence("memory of the GPU", limit.limit, "bytes", None, limit.place),
            Evidence("of it used", limit.used, "bytes", None, limit.place),
        ]
        evidence += [_held(s, holder) for holder in _holders(s, limit)[:5] if holder.bytes is not None]
    used = f": {size(limit.used)} of {size(limit.limit)} of GPU {limit.scope} were used" if limit is not None else ""
    if last.at_ns > s.stepped_ns:
        yield Notice(
            REFUSED,
            Cause.GPU_MEMORY,
            last.at_ns,
            f"the GPU had no memory left (cudaMalloc: out of memory){used}",
            happened=True,
            evidence=evidence,
            advice=_advice(s, limit),
            pid=s.driver,
        )
    else:
        yield Notice(
            "gpu-memory-retried",
            Cause.GPU_MEMORY,
            refused[0].at_ns,
            f"the GPU had no memory left {last.count} times (cudaMalloc: out of memory), and the training went on "
            f"after its allocator had freed some{used}",
            evidence=evidence,
            advice=_advice(s, limit),
            pid=s.driver,
            replaces=REFUSED,
        )


def _holders(s: Situation, limit: LimitSample) -> list[GpuHolder]:
    return sorted(s.gpu_holders.get(limit.place, ()), key=lambda holder: -(holder.bytes or 0))


def _advice(s: Situation, limit: LimitSample | None) -> list[str]:
    holders = _holders(s, limit) if limit is not None else []
    others = [holder for holder in holders if holder.pid not in s.roles and holder.pid != s.driver]
    return [
        "keep no tensors of past steps: losses with their graph (use .item() or .detach()), lists of outputs",
        "smaller batch; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where it is fragmented",
        *(["other processes hold memory of this GPU: end them or choose another GPU"] if others else []),
    ]


def _coming(s: Situation, limit: LimitSample, forecast: Forecast) -> Notice:
    holders = _holders(s, limit)
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
        advice=_advice(s, limit),
        pid=s.driver,
    )


def _held(s: Situation, holder: GpuHolder) -> Evidence:
    return Evidence(f"GPU memory of {s.who(holder.pid)}", holder.bytes, "bytes", holder.pid)
