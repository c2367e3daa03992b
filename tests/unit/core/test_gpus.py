"""GPUs of a run by who holds their memory; what breaks in them; idle time by what stalled the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders.driver import PID
from tests.unit.core.test_limits import WORKER, Host
from trainprobe.collect.kernel_log import xid_told
from trainprobe.model.event import GpuXid
from trainprobe.model.moment import NS
from trainprobe.model.report import Bound, Gpu
from trainprobe.model.sample import GpuHolder, GpuSample
from trainprobe.pipeline.gpus import bound_by, same_bus


def reading(host: Host, index: int = 0, utilization: float | None = 0.9, pid: int = PID, **more: Any) -> GpuSample:
    now = host.driver.now + NS  # the second that comes
    return GpuSample(
        index, f"GPU-{index}", f"00000000:{index + 1:02X}:00.0", now, now - NS, utilization=utilization,
        holders=(GpuHolder(pid, 1 << 30),), **more,
    )  # fmt: skip


def test_a_ranks_gpus_are_those_whose_memory_it_holds() -> None:
    host = Host()
    for _ in range(5):
        host.second(gpus=(reading(host), reading(host, 1, 0.1, pid=1), reading(host, 2, 0.5, pid=WORKER)))
    assert [(gpu.uuid, gpu.index) for gpu in host.rank.gpus] == [("GPU-0", 0), ("GPU-2", 2)]
    first = host.rank.gpus[0]
    assert first.utilization_mean == pytest.approx(0.9)
    assert first.idle_seconds == pytest.approx(0.5, rel=0.01)
    assert [gpu.index for gpu in host.report.gpus] == [0, 1, 2]


def test_what_is_not_told_stays_unknown() -> None:
    host = Host()
    host.second(gpus=(reading(host, utilization=None, missing=("samples",)),))
    (gpu,) = host.rank.gpus
    assert gpu.utilization_mean is None
    assert gpu.idle_seconds is None
    assert host.report.gpus[0].power_watts is None
    assert host.report.gpus[0].missing == ["samples"]


def test_an_xid_of_a_gpu_that_the_run_uses_explains_its_end() -> None:
    host = Host()
    host.second(gpus=(reading(host), reading(host, 1, pid=1)))
    host.second(GpuXid(host.driver.now, "0000:02:00", 79, "pid=1, GPU has fallen off the bus."))
    assert host.rank.warnings == [], "the other's GPU"
    host.second(GpuXid(host.driver.now, "0000:01:00", 79, "pid=1000, GPU has fallen off the bus."))
    host.end(1)
    (warning,) = host.rank.warnings
    assert warning.cause == "gpu_error"
    assert "GPU 0" in warning.summary
    assert "Xid 79: the GPU has fallen off the bus" in warning.summary
    assert host.rank.verdict.cause == "gpu_error"
    assert host.report.gpus[0].errors == {"xid/79": 1}


def test_a_gpu_that_is_lost_is_told_once_and_counts_once() -> None:
    host = Host()
    host.second(gpus=(reading(host),))
    for _ in range(4):
        host.second(gpus=(GpuSample(0, "GPU-0", "00000000:01:00.0", lost=True),))
    assert [w.cause for w in host.rank.warnings] == ["gpu_error"]
    assert host.report.gpus[0].state == "lost"
    assert host.report.gpus[0].errors == {"lost/": 1}


def test_errors_that_were_there_before_are_not_this_runs() -> None:
    host = Host()
    host.second(gpus=(reading(host, ecc_errors=3),))
    host.second(gpus=(reading(host, ecc_errors=3),))
    assert host.rank.warnings == []
    host.second(gpus=(reading(host, ecc_errors=5),))
    assert "2 uncorrected ECC errors" in host.rank.warnings[0].summary
    assert host.report.gpus[0].errors == {"ecc/": 2}


def test_time_with_a_lowered_clock_by_reason() -> None:
    host = Host()
    for second in range(6):
        host.second(gpus=(reading(host, reasons=("hw_thermal",) if second < 4 else ()),))
    assert host.report.gpus[0].throttled_seconds == {"hw_thermal": pytest.approx(4.0)}


def test_idle_time_in_a_stall_belongs_to_its_cause() -> None:
    host = Host()
    host.second(gpus=(reading(host),))
    start = host.driver.now
    host.driver.write("/ckpt/step.pt", 10**9, 4.0)
    host.driver.train(1)
    end = host.driver.now
    samples = [
        replace(reading(host, utilization=0.0), at_ns=start + (n + 1) * NS, since_ns=start + n * NS) for n in range(4)
    ]
    host.second(gpus=tuple(samples))
    for _ in range(5):
        host.second(gpus=(reading(host),))
    assert end - start > 4 * NS
    idle = host.rank.gpus[0].idle_by_cause
    assert set(idle) == {"checkpoint"}
    assert idle["checkpoint"] == pytest.approx(4.0, abs=1.1)


@pytest.mark.parametrize(("utilization", "lost"), [(0.95, 0.0), (0.3, 4.0)])
def test_a_stall_that_the_gpu_did_not_feel_is_no_loss(utilization: float, lost: float) -> None:
    host = Host()
    host.second(gpus=(reading(host),))
    start = host.driver.now
    host.driver.write("/ckpt/step.pt", 10**9, 4.0)
    host.driver.train(1)
    samples = [
        replace(reading(host, utilization=utilization), at_ns=start + (n + 1) * NS, since_ns=start + n * NS)
        for n in range(5)
    ]
    host.second(gpus=tuple(samples))
    for _ in range(6):
        host.second(gpus=(reading(host, utilization=utilization),))
    rank = host.rank
    assert rank.lost.get("checkpoint", 0.0) == pytest.approx(lost, abs=0.3)
    (stall,) = rank.stalls
    assert stall.seconds == pytest.approx(sum(stall.shares.values()))
    phases = sum(rank.counters.phase_seconds.values())
    assert rank.wall_seconds == pytest.approx(rank.productive_seconds + phases + sum(rank.lost.values()), abs=0.01)


def test_what_sets_the_pace_where_gpus_tell() -> None:
    host = Bound("mixed", "the driver waits for data for 10 % of its time")
    assert bound_by([Gpu("a", 0, 0.97)], host).by == "compute"
    assert bound_by([Gpu("a", 0, 0.6)], host).by == "input"
    assert bound_by([Gpu("a", 0, 0.9)], host).by == "mixed"
    assert bound_by([Gpu("a", 0, None)], host) == host
    assert bound_by([Gpu("a", 0, 0.6)], Bound("compute", "")).by == "compute", "the GPU idles, but not for data"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", ("0000:3b:00", 79)),
        ("NVRM: Xid (PCI:0000:3B:00): 31, pid=12, name=python, Ch 00000008", ("0000:3b:00", 31)),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", None),
    ],
)  # fmt: skip
def test_xids_of_the_kernel_log(line: str, told: tuple[str, int] | None) -> None:
    found = xid_told(line, 5)
    assert (None if found is None else (found.bus_id, found.code)) == told


def test_one_bus_written_in_two_ways() -> None:
    assert same_bus("00000000:3B:00.0", "0000:3b:00")
    assert not same_bus("00000000:3B:00.0", "0000:3c:00")
    assert not same_bus("", "0000:3c:00")
