"""The GPU lowered its clock: the same work takes longer."""

from __future__ import annotations

from collections.abc import Mapping

from trainprobe.derive.gpu_pace import Slowed
from trainprobe.derive.ledger import Item
from trainprobe.detect.base import Claim, Window, seconds, take
from trainprobe.model.cause import Cause, State
from trainprobe.model.report import Evidence

WAITING = (State.COMPUTE, State.GPU_WAIT, State.LOCK, State.OTHER)
"""Where a driver is while the GPU works: a synchronising call spins, or sleeps in a lock, poll or ioctl."""
MOST = 0.7  # of the excess explained by the clock: the rest is the clock's doing too (memory is slower as well)
MEANINGS = {
    "hw_thermal": "it is too hot (hw_thermal)",
    "sw_thermal": "it is too hot (sw_thermal)",
    "hw_power_brake": "the power supply asked for it (hw_power_brake)",
    "hw_slowdown": "heat or power, the hardware says no more (hw_slowdown)",
    "sw_power_cap": "its power limit is too low for its work (sw_power_cap)",
}
"""The more specific first."""


def claim(window: Window, left: Mapping[Item, float]) -> Claim | None:
    """As much as the lowered clock makes of the GPU's work in the window; what a driver on the GPU's wait spent."""
    slowed = window.slowed
    waited = take(left, states=WAITING)
    total = sum(waited.values())
    if slowed is None or total <= 0:
        return None
    part = 1.0 if slowed.lost_ns is None or slowed.lost_ns >= MOST * total else slowed.lost_ns / total
    taken = {item: ns * part for item, ns in waited.items() if ns * part > 0}
    told = sum(taken.values())
    if told <= 0:
        return None
    why = next((meaning for reason, meaning in MEANINGS.items() if reason in slowed.reasons), "")
    return Claim(
        Cause.GPU_THROTTLE,
        taken,
        _summary(slowed, why),
        [f"driver waits for GPU {slowed.index}", f"GPU {slowed.index} runs slower: {why}"],
        _evidence(window, slowed, told),
    )


def _summary(slowed: Slowed, why: str) -> str:
    if slowed.clock_hertz is None or not slowed.usual_hertz:
        return f"GPU {slowed.index} lowered its clock: {why}"
    share = slowed.clock_hertz / slowed.usual_hertz
    of = "its maximum" if slowed.of_maximum else "what it was under load"
    return f"GPU {slowed.index} lowered its clock to {slowed.clock_hertz / 1e6:.0f} MHz ({share:.0%} of {of}): {why}"


def _evidence(window: Window, slowed: Slowed, told: float) -> list[Evidence]:
    found = [
        Evidence("driver waiting for the slower GPU", seconds(told), "s", window.driver_pid),
        Evidence("throttle reasons (NVML)", " ".join(slowed.reasons), "", None, slowed.uuid),
        Evidence("time with a lowered clock", seconds(slowed.slowed_ns), "s", None, slowed.uuid),
    ]
    figures = (
        ("SM clock", slowed.clock_hertz, "Hz"),
        ("maximal SM clock" if slowed.of_maximum else "SM clock under load before", slowed.usual_hertz, "Hz"),
        ("temperature", slowed.temperature_celsius, "°C"),
        ("power", slowed.power_watts, "W"),
    )
    return found + [
        Evidence(what, value, unit, None, slowed.uuid) for what, value, unit in figures if value is not None
    ]
