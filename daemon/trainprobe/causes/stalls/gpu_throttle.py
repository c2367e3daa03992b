"""The GPU lowered its clock: the same work takes longer."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import always
from trainprobe.causes.base import Claim, Items, Window, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.derive.host.gpu_speed import Slowed
from trainprobe.model.cause import Cause, Kind, State
from trainprobe.model.message import Message, template
from trainprobe.model.report import Evidence

SUMMARY = template("gpu_throttle.summary", "GPU {gpu} lowered its clock: {why}")
TO_CLOCK = template(
    "gpu_throttle.to_clock", "GPU {gpu} lowered its clock to {clock:MHz} ({share:percent} of {usual}): {why}"
)
ITS_MAXIMUM = template("gpu_throttle.its_maximum", "its maximum")
UNDER_LOAD = template("gpu_throttle.under_load", "what it was under load")
WAITS = template("gpu_throttle.waits", "training thread waits for GPU {gpu}")
SLOWER = template("gpu_throttle.slower", "GPU {gpu} runs slower: {why}")
SECONDS = template("gpu_throttle.seconds", "training thread waiting for the slower GPU")
REASONS = template("gpu_throttle.reasons", "throttle reasons (NVML)")
SLOWED_SECONDS = template("gpu_throttle.slowed_seconds", "time with a lowered clock")
CLOCK = template("gpu_throttle.clock", "SM clock")
MAXIMAL_CLOCK = template("gpu_throttle.maximal_clock", "maximal SM clock")
CLOCK_BEFORE = template("gpu_throttle.clock_before", "SM clock under load before")
TEMPERATURE = template("gpu_throttle.temperature", "temperature")
POWER = template("gpu_throttle.power", "power")
WAITING = (State.COMPUTE, State.GPU_WAIT, State.LOCK, State.OTHER)
"""Where a driver is while the GPU works: a synchronising call spins, or sleeps in a lock, poll or ioctl."""
MOST = 0.7  # of the excess explained by the clock: the rest is the clock's doing too (memory is slower as well)
MEANINGS = {
    "hw_thermal": template("gpu_throttle.hw_thermal", "it is too hot (hw_thermal)"),
    "sw_thermal": template("gpu_throttle.sw_thermal", "it is too hot (sw_thermal)"),
    "hw_power_brake": template("gpu_throttle.hw_power_brake", "the power supply asked for it (hw_power_brake)"),
    "hw_slowdown": template("gpu_throttle.hw_slowdown", "heat or power, the hardware says no more (hw_slowdown)"),
    "sw_power_cap": template("gpu_throttle.sw_power_cap", "its power limit is too low for its work (sw_power_cap)"),
}
"""The more specific first."""


def claim(window: Window, left: Items) -> Claim | None:
    """As much as the lowered clock makes of the GPU's work in the window; what a driver on the GPU's wait spent."""
    slowed = window.slowed
    waited = take_items(left, states=WAITING)
    total = sum(waited.values())
    if slowed is None or total <= 0:
        return None
    part = 1.0 if slowed.lost_ns is None or slowed.lost_ns >= MOST * total else slowed.lost_ns / total
    taken = {item: ns * part for item, ns in waited.items() if ns * part > 0}
    told = sum(taken.values())
    if told <= 0:
        return None
    why = next((meaning() for reason, meaning in MEANINGS.items() if reason in slowed.reasons), None)
    return Claim(
        Cause.GPU_THROTTLE,
        taken,
        _summary(slowed, why),
        [WAITS(gpu=slowed.index), SLOWER(gpu=slowed.index, why=why)],
        _evidence(window, slowed, told),
    )


def _summary(slowed: Slowed, why: Message | None) -> Message:
    if slowed.clock_hertz is None or not slowed.usual_hertz:
        return SUMMARY(gpu=slowed.index, why=why)
    share = slowed.clock_hertz / slowed.usual_hertz
    usual = ITS_MAXIMUM() if slowed.of_maximum else UNDER_LOAD()
    return TO_CLOCK(gpu=slowed.index, clock=slowed.clock_hertz, share=share, usual=usual, why=why)


def _evidence(window: Window, slowed: Slowed, told: float) -> list[Evidence]:
    found = [
        Evidence.of(SECONDS(), seconds(told), "s", window.driver_pid),
        Evidence.of(REASONS(), " ".join(slowed.reasons), "", None, slowed.uuid),
        Evidence.of(SLOWED_SECONDS(), seconds(slowed.slowed_ns), "s", None, slowed.uuid),
    ]
    figures = (
        (CLOCK(), slowed.clock_hertz, "Hz"),
        (MAXIMAL_CLOCK() if slowed.of_maximum else CLOCK_BEFORE(), slowed.usual_hertz, "Hz"),
        (TEMPERATURE(), slowed.temperature_celsius, "°C"),
        (POWER(), slowed.power_watts, "W"),
    )
    return found + [
        Evidence.of(what, value, unit, None, slowed.uuid) for what, value, unit in figures if value is not None
    ]


MEND_REASON = template(
    "gpu_throttle.advice.mend_reason",
    "mend what the reason says: cooling and air flow for heat, the power supply or its limit for power",
)
ANOTHER_GPU = template(
    "gpu_throttle.advice.another_gpu",
    "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER shows it; until then use another GPU",
)


SPEC = CauseSpec(
    "gpu_throttle",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="a GPU that is throttled",
    colours=("#db2777", "#f9a8d4"),
    group=groups.GPU,
    rules=(OrderedRule(claim, stall=220),),
    advice=always(MEND_REASON, ANOTHER_GPU),
    gpu_works=True,
)
