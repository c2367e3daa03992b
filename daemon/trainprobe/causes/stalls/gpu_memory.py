"""GPU memory: allocated and freed again and again, so that driver or GPU stand still; or running out, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainprobe.causes import groups
from trainprobe.causes.advice import always
from trainprobe.causes.base import Claim, Items, Window, seconds, take_items
from trainprobe.causes.situation import GROWING_FOR, GROWTH, USED, Notice, Situation, figures
from trainprobe.causes.spec import CauseSpec, OrderedCheck, OrderedRule
from trainprobe.derive.steps.ledger import Item
from trainprobe.derive.trend.forecast import Forecast
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import CallFailed
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence
from trainprobe.model.sample import GpuHolder, LimitSample

COMING = template(
    "gpu_memory.coming",
    "memory of GPU {gpu} grows by {per_second:bytes} a second: {used:bytes} of {limit:bytes} are used, "
    "it is full in {left:span}",
)
HAPPENED = template("gpu_memory.happened", "the GPU had no memory left (cudaMalloc: out of memory){used}")
RETRIED = template(
    "gpu_memory.retried",
    "the GPU had no memory left {count:once|# times} (cudaMalloc: out of memory), and the training went on "
    "after its allocator had freed some{used}",
)
WERE_USED = template("gpu_memory.were_used", ": {used:bytes} of {limit:bytes} of GPU {gpu} were used")
ALLOCATIONS_REFUSED = template("gpu_memory.refused", "allocations refused (cudaMalloc: out of memory)")
LIMIT = template("gpu_memory.limit", "memory of the GPU")
HELD = template("gpu_memory.held", "GPU memory of {who}")
KEEP_NONE = template(
    "gpu_memory.keep_none",
    "keep no tensors of past steps: losses with their graph (use .item() or .detach()), lists of outputs",
)
SMALLER = template(
    "gpu_memory.smaller", "smaller batch; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where it is fragmented"
)
END_OTHERS = template(
    "gpu_memory.end_others", "other processes hold memory of this GPU: end them or choose another GPU"
)
SUMMARY = template(
    "gpu_memory.summary",
    "{seconds:seconds} in cudaMalloc and cudaFree: {allocations:# allocation|# allocations}, {frees:# free|# frees}",
)
ALLOCATES = template("gpu_memory.allocates", "training thread allocates and frees memory of the GPU")
SECONDS = template("gpu_memory.seconds", "time in cudaMalloc and cudaFree")
ALLOCATIONS = template("gpu_memory.allocations", "allocations of GPU memory")
FREES = template("gpu_memory.frees", "frees of GPU memory")


def claim(window: Window, left: Items) -> Claim | None:
    """As much of the GPU's waits as was spent in cudaMalloc and cudaFree; of a backward on other threads, which the
    driver waits for, the same."""
    churn = window.churn
    if not churn or churn.ns <= 0:
        return None
    taken: dict[Item, float] = {}
    for waits in (
        take_items(left, states=[State.GPU_WAIT]),
        take_items(left, leaves=[Leaf.LOCK], regions=[Region.BACKWARD]),
    ):
        total, open_ns = sum(waits.values()), churn.ns - sum(taken.values())
        if total > 0 and open_ns > 0:
            taken.update(take_items(waits, part=min(1.0, open_ns / total)))
    if not taken:
        return None
    told = seconds(sum(taken.values()))
    return Claim(
        Cause.GPU_MEMORY,
        taken,
        SUMMARY(seconds=told, allocations=churn.allocations, frees=churn.frees),
        [ALLOCATES()],
        [
            Evidence.of(SECONDS(), seconds(churn.ns), "s", window.driver_pid),
            Evidence.of(ALLOCATIONS(), churn.allocations, "", window.driver_pid),
            Evidence.of(FREES(), churn.frees, "", window.driver_pid),
        ],
    )


CALL = "cudaMalloc"
REFUSED, RETRIED_KEY = "gpu-memory-refused", "gpu-memory-retried"


def check(s: Situation) -> Iterator[Notice]:
    """One notice about what was refused, one for the GPU that is full first."""
    refused = [failed for failed in s.failures if failed.call == CALL]
    if refused:
        yield from _refused(s, refused)
    for limit, forecast in s.limits.coming("gpu")[:1]:
        yield _coming(s, limit, forecast)


def _refused(s: Situation, refused: Sequence[CallFailed]) -> Iterator[Notice]:
    """The end of the training, if no step comes after it; otherwise the allocator has helped itself."""
    last = refused[-1]
    limit = s.limits.fullest("gpu")
    evidence = [Evidence.of(ALLOCATIONS_REFUSED(), last.count, "", last.pid)]
    if limit is not None:
        evidence += [
            Evidence.of(LIMIT(), limit.limit, "bytes", None, limit.place),
            Evidence.of(USED(), limit.used, "bytes", None, limit.place),
        ]
        evidence += [_held(s, holder) for holder in _holders(s, limit)[:5] if holder.bytes is not None]
    used = WERE_USED(used=limit.used, limit=limit.limit, gpu=limit.scope) if limit is not None else None
    if last.at_ns > s.stepped_ns:
        yield Notice(
            REFUSED,
            Cause.GPU_MEMORY,
            last.at_ns,
            HAPPENED(used=used),
            happened=True,
            evidence=evidence,
            advice=_limit_advice(s, limit),
            pid=s.driver,
            replaces=RETRIED_KEY,
        )
    else:
        yield Notice(
            RETRIED_KEY,
            Cause.GPU_MEMORY,
            refused[0].at_ns,
            RETRIED(count=last.count, used=used),
            evidence=evidence,
            advice=_limit_advice(s, limit),
            pid=s.driver,
            replaces=REFUSED,
        )


def _holders(s: Situation, limit: LimitSample) -> list[GpuHolder]:
    return sorted(s.gpu_holders.get(limit.place, ()), key=lambda holder: -(holder.bytes or 0))


def _limit_advice(s: Situation, limit: LimitSample | None) -> list[Message]:
    holders = _holders(s, limit) if limit is not None else []
    others = [holder for holder in holders if holder.pid not in s.roles and holder.pid != s.driver]
    return [KEEP_NONE(), SMALLER(), *([END_OTHERS()] if others else [])]


def _coming(s: Situation, limit: LimitSample, forecast: Forecast) -> Notice:
    holders = _holders(s, limit)
    return Notice(
        f"gpu-memory-{limit.place}",
        Cause.GPU_MEMORY,
        s.now_ns,
        COMING(gpu=limit.scope, **figures(limit, forecast)),
        eta_seconds=forecast.eta_seconds,
        evidence=[
            Evidence.of(LIMIT(), limit.limit, "bytes", None, limit.place),
            Evidence.of(USED(), limit.used, "bytes", None, limit.place),
            Evidence.of(GROWTH(), round(forecast.slope), "bytes/s"),
            Evidence.of(GROWING_FOR(), round(forecast.ramp_seconds), "s"),
            *(_held(s, holder) for holder in holders[:5] if holder.bytes is not None),
        ],
        advice=_limit_advice(s, limit),
        pid=s.driver,
    )


def _held(s: Situation, holder: GpuHolder) -> Evidence:
    return Evidence.of(HELD(who=s.who(holder.pid)), holder.bytes, "bytes", holder.pid)


KEEP_CACHE = template(
    "gpu_memory.advice.keep_cache",
    "take torch.cuda.empty_cache() out of the loop; let shapes repeat, so that the allocator can use its blocks again",
)
NEAR_FULL = template(
    "gpu_memory.advice.near_full",
    "near full memory its retries free everything: smaller batch, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)


SPEC = CauseSpec(
    "gpu_memory",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK, Kind.EVENT, Kind.WARNING}),
    title="allocating GPU memory",
    colours=("#be185d", "#f472b6"),
    group=groups.GPU,
    rules=(OrderedRule(claim, stall=210),),
    checks=(OrderedCheck(check, 30),),
    advice=always(KEEP_CACHE, NEAR_FULL),
    gpu_works=True,
)
