"""Each figure that is read from NVML beside what nvidia-smi says at the same time."""

from __future__ import annotations

import subprocess
import time
import xml.etree.ElementTree as Xml
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from benchmarks.programs import ProgramError
from trainprobe.collect.nvml import Gpus
from trainprobe.model.sample import GpuSample

MIB = 1 << 20
REASONS = {
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal": "sw_thermal_slowdown",
    "hw_thermal": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
}
"""Ours, and nvidia-smi's behind ``clocks_event_reason_`` (``clocks_throttle_reason_`` of older ones)."""
SAME, CLOSE = 0.0, 0.25
Field = tuple[Callable[[Xml.Element], Any], float, float]
"""What nvidia-smi says; how much it may differ, as a part, and absolutely: it is read at another moment."""


def number(*paths: str, scale: float = 1.0) -> Callable[[Xml.Element], float | None]:
    """The first of these that is a number."""

    def read(gpu: Xml.Element) -> float | None:
        for path in paths:
            words = (gpu.findtext(path) or "").split()
            try:
                return float(words[0]) * scale
            except (IndexError, ValueError):
                continue
        return None

    return read


def reasons(gpu: Xml.Element) -> tuple[str, ...] | None:
    for kind in ("event", "throttle"):
        found = gpu.find(f"clocks_{kind}_reasons")
        if found is not None:
            said = {name: found.findtext(f"clocks_{kind}_reason_{theirs}") for name, theirs in REASONS.items()}
            return tuple(name for name, state in said.items() if state == "Active")
    return None


def uncorrected(gpu: Xml.Element) -> float | None:
    told = [one for one in gpu.iterfind("ecc_errors/volatile//*") if "uncorrectable" in one.tag or one.tag == "total"]
    numbers = [float(one.text or "") for one in told if (one.text or "").isdigit()]
    return sum(numbers) if numbers else None


def mig(gpu: Xml.Element) -> bool:
    return gpu.findtext("mig_mode/current_mig") == "Enabled"


def pids(gpu: Xml.Element) -> tuple[int, ...]:
    computing = [one for one in gpu.iterfind("processes/process_info") if one.findtext("type") != "G"]
    return tuple(sorted(int(one.findtext("pid") or 0) for one in computing))


FIELDS: dict[str, Field] = {
    "uuid": (lambda gpu: gpu.findtext("uuid"), SAME, 0),
    "bus_id": (lambda gpu: gpu.get("id"), SAME, 0),
    "mig": (mig, SAME, 0),
    "utilization": (number("utilization/gpu_util", scale=0.01), CLOSE, 0.25),
    "memory_used_bytes": (number("fb_memory_usage/used", scale=MIB), 0.02, 64 * MIB),
    "memory_total_bytes": (number("fb_memory_usage/total", scale=MIB), 0.02, 0),
    "power_watts": (
        number(
            "gpu_power_readings/instant_power_draw", "gpu_power_readings/power_draw",
            "gpu_power_readings/average_power_draw", "power_readings/power_draw",
        ), CLOSE, 30,
    ),
    "temperature_celsius": (number("temperature/gpu_temp"), SAME, 5),
    "sm_clock_hertz": (number("clocks/sm_clock", scale=1e6), CLOSE, 0),
    "sm_clock_max_hertz": (number("max_clocks/sm_clock", scale=1e6), SAME, 0),
    "pcie_receive_bytes_per_second": (number("pci/rx_util", scale=1024), 1.0, 100e6),
    "pcie_transmit_bytes_per_second": (number("pci/tx_util", scale=1024), 1.0, 100e6),
    "reasons": (reasons, SAME, 0),
    "ecc_errors": (uncorrected, SAME, 0),
    "remapped_rows": (number("remapped_rows/remapped_row_unc"), SAME, 0),
    "holders": (pids, SAME, 0),
}  # fmt: skip
NOT_TOLD = ("tensor_active",)
"""nvidia-smi has no such figure."""


def verdict(ours: Any, theirs: Any, part: float, absolute: float) -> str:
    if ours is None and theirs is None:
        return "neither has it"
    if ours is None or theirs is None:
        return "only nvidia-smi has it" if ours is None else "only NVML has it"
    if isinstance(ours, (int, float)) and not isinstance(ours, bool) and isinstance(theirs, (int, float)):
        return "agrees" if abs(ours - theirs) <= max(absolute, part * max(abs(ours), abs(theirs))) else "DIFFERS"
    return "agrees" if ours == theirs else "DIFFERS"


def compare(sample: GpuSample, gpu: Xml.Element) -> dict[str, dict[str, Any]]:
    """field -> ours, theirs, verdict."""
    found = {}
    told: dict[str, Any] = asdict(sample)
    told["holders"] = None if sample.holders is None else tuple(sorted(holder.pid for holder in sample.holders))
    for name, (read, part, absolute) in FIELDS.items():
        theirs = read(gpu)
        found[name] = {"ours": told[name], "theirs": theirs, "verdict": verdict(told[name], theirs, part, absolute)}
    for name in NOT_TOLD:
        found[name] = {"ours": told[name], "theirs": None, "verdict": "only NVML has it" if told[name] else "neither"}
    return found


def read(seconds: float = 15.0) -> tuple[GpuSample, ...]:
    """As the daemon reads them, from the second reading on: the first knows no utilisation. Raises ProgramError."""
    gpus, deadline, readings = Gpus(every_ns=500_000_000), time.monotonic() + seconds, 0
    answer: Any = ()
    try:
        while time.monotonic() < deadline:
            answer = gpus.poll(time.monotonic_ns())
            readings += isinstance(answer, tuple) and bool(answer)
            if readings >= 3:
                return tuple(answer)
            time.sleep(0.05)
    finally:
        gpus.close()
    raise ProgramError(f"NVML is not read: {answer}")


def smi() -> list[Xml.Element]:
    """The GPUs of ``nvidia-smi -q -x``."""
    done = subprocess.run(["nvidia-smi", "-q", "-x"], capture_output=True, check=True, timeout=60)
    return Xml.fromstring(done.stdout).findall("gpu")


def measure() -> dict[str, Any]:
    """All GPUs. ``wrong``: what differs, or is in only one of the two."""
    theirs = {gpu.findtext("uuid"): gpu for gpu in smi()}
    found, wrong = {}, []
    for sample in read():
        if sample.uuid not in theirs:
            wrong.append(f"GPU {sample.index} ({sample.uuid}) is not among nvidia-smi's")
            continue
        fields = compare(sample, theirs[sample.uuid])
        found[str(sample.index)] = {"fields": fields, "missing": sample.missing}
        told = ((name, one) for name, one in fields.items() if one["verdict"] in ("DIFFERS", "only nvidia-smi has it"))
        wrong += [f"GPU {sample.index} {name}: {one['ours']}, nvidia-smi: {one['theirs']}" for name, one in told]
    return {"gpus": found, "wrong": wrong}
