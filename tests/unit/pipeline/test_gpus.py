"""GPUs of a run by who holds their memory; what breaks in them; idle time by what stalled the run."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.builders.driver import PID, moment
from tests.unit.pipeline.test_limits import GB, RUN, WORKER, Host
from trainprobe.collect.kernel_log import xid_logged
from trainprobe.derive.host.gpu_speed import GpuSpeed
from trainprobe.model.event import GpuXid, RunEnded
from trainprobe.model.frame import Frame
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


def test_a_gpu_that_is_lost_or_hangs_for_a_while_tells_nothing_then_and_goes_on() -> None:
    """Time in which it told nothing is neither busy nor idle, and no figure of it becomes 0."""
    host, seconds = Host(), random.randrange(3, 9)
    host.second(gpus=(reading(host), reading(host, 1)))
    for trouble in random.sample([{"lost": True}, {"hung": True}, {"missing": ("handle",)}], 3):
        known = host.rank.gpus[0].idle_seconds
        for _ in range(seconds):
            silent = GpuSample(0, "GPU-0", "00000000:01:00.0", **trouble)  # type: ignore[arg-type]
            host.second(gpus=(silent, reading(host, 1)))
        state, other = host.report.gpus
        assert state.state == next((name for name in trouble if name != "missing"), "up")
        told = (state.utilization, state.memory_used_bytes, state.memory_total_bytes, state.power_watts)
        assert told == (None,) * 4
        assert (other.state, other.utilization) == ("up", pytest.approx(0.9))
        assert host.rank.gpus[0].idle_seconds == known
        host.second(gpus=(reading(host), reading(host, 1)))
        assert (host.report.gpus[0].state, host.report.gpus[0].utilization) == ("up", pytest.approx(0.9))
        assert host.rank.gpus[0].idle_seconds > (known or 0.0)


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


def test_idle_time_of_the_last_seconds_belongs_to_its_cause_as_the_run_ends() -> None:
    host = Host()
    host.second(gpus=(reading(host),))
    start = host.driver.now
    host.driver.write("/ckpt/step.pt", 10**9, 2.0)
    host.driver.train(1)
    samples = [
        replace(reading(host, utilization=0.0), at_ns=start + (n + 1) * NS, since_ns=start + n * NS) for n in range(2)
    ]
    host.second(gpus=tuple(samples))
    assert not host.rank.gpus[0].idle_by_cause, "a stall may still turn out to be another"
    host.driver.exit(0)
    host.driver.events.append(RunEnded(RUN, host.driver.now))
    host.second_of_end()
    assert host.rank.gpus[0].idle_by_cause == {"checkpoint": pytest.approx(2.0, abs=0.2)}


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
    assert len(rank.stalls) == rank.totals.stalls == (1 if lost else 0), "what cost nothing is not listed"
    for stall in rank.stalls:
        assert stall.seconds == pytest.approx(sum(stall.shares.values()))
        assert "the GPU worked on" not in stall.summary
    phases = sum(rank.counters.phase_seconds.values())
    assert rank.wall_seconds == pytest.approx(rank.productive_seconds + phases + sum(rank.lost.values()), abs=0.01)


def test_a_stall_that_the_gpu_felt_in_part_says_so() -> None:
    """Busy for two of five seconds: those are not lost, and the stall that is left says where they are."""
    host = Host()
    host.second(gpus=(reading(host),))
    start = host.driver.now
    host.driver.write("/ckpt/step.pt", 10**9, 5.0)
    host.driver.train(1)
    samples = [
        replace(reading(host, utilization=0.95 if n < 2 else 0.1), at_ns=start + (n + 1) * NS, since_ns=start + n * NS)
        for n in range(6)
    ]
    host.second(gpus=tuple(samples))
    for _ in range(6):
        host.second(gpus=(reading(host, utilization=0.1),))
    (stall,) = host.rank.stalls
    assert stall.seconds == pytest.approx(3.0, abs=0.3)
    given = re.search(r"the GPU worked on for ([\d.]+) s more, which are not lost", stall.summary)
    assert given is not None
    assert stall.seconds + float(given[1]) == pytest.approx(5.0, abs=0.2)


@pytest.mark.parametrize(("utilization", "lost"), [(None, 5.0), (0.3, 5.0), (0.0, 0.0)])
def test_a_gpu_that_another_program_keeps_busy_gives_nothing_back(utilization: float | None, lost: float) -> None:
    """One that only holds memory, as an idle notebook does, changes nothing."""
    host = Host()
    holders = (GpuHolder(PID, 1 << 30, 0.5), GpuHolder(77, 1 << 30, utilization))
    host.second(gpus=(replace(reading(host), holders=holders),))
    start = host.driver.now
    host.driver.write("/ckpt/step.pt", 10**9, 5.0)
    host.driver.train(1)
    busy = replace(reading(host), holders=holders)
    host.second(gpus=tuple(replace(busy, at_ns=start + (n + 1) * NS, since_ns=start + n * NS) for n in range(6)))
    for _ in range(6):
        host.second(gpus=(replace(reading(host, utilization=0.1), holders=holders),))
    assert host.rank.lost.get("checkpoint", 0.0) == pytest.approx(lost, abs=0.3)
    assert ("other programs" in host.rank.bound.why) == bool(lost)


def test_what_sets_the_pace_where_gpus_tell() -> None:
    host = Bound("mixed", "the training thread waits for data for 10 % of its time")
    assert bound_by([Gpu("a", 0, 0.97)], host).by == "compute"
    assert bound_by([Gpu("a", 0, 0.6)], host).by == "input"
    assert bound_by([Gpu("a", 0, 0.9)], host).by == "mixed"
    assert bound_by([Gpu("a", 0, None)], host) == host
    assert bound_by([Gpu("a", 0, 0.6)], Bound("compute", "")).by == "compute", "the GPU idles, but not for data"


def stepping(host: Host, seconds: int, step: float, **more: Any) -> None:
    """Steps of so many seconds each, all of the excess in the backward, where a driver waits for its GPU."""
    for _ in range(seconds):
        for _ in range(round(1 / step)):
            host.driver.fetch()
            host.driver.spend(0.004)
            host.driver.backward(step - 0.010)
            host.driver.optimizer()
        told = tuple(host.driver.events)
        host.driver.events.clear()
        now = host.driver.now
        sample = replace(reading(host, utilization=0.98, **more), at_ns=now, since_ns=now - NS)
        host.pipeline.step(Frame(moment(now), told, gpus=(sample,)))


def usual(host: Host, seconds: int = 20, step: float = 0.05, **more: Any) -> None:
    stepping(host, seconds, step, **{"sm_clock_hertz": 1_800_000_000, "sm_clock_max_hertz": 1_980_000_000, **more})


@pytest.mark.parametrize("reason", ["hw_thermal", "sw_thermal", "hw_slowdown", "hw_power_brake", "sw_power_cap"])
def test_steps_that_a_lowered_clock_makes_late_are_its_stalls(reason: str) -> None:
    host = Host()
    usual(host)
    begin = host.driver.now
    usual(host, 10, 0.125, sm_clock_hertz=720_000_000, reasons=(reason,), temperature_celsius=91.0, power_watts=301.0)
    lost = (host.driver.now - begin) * 0.6 / NS
    usual(host, 5)
    rank = host.rank
    assert rank.lost["gpu_throttle"] == pytest.approx(lost, rel=0.15)
    assert (rank.verdict.kind, rank.verdict.cause) == ("stall", "gpu_throttle")
    stall = next(one for one in rank.stalls if one.cause == "gpu_throttle")
    assert "GPU 0 lowered its clock to 720 MHz (40.0 % of what it was under load)" in stall.summary
    assert reason in stall.summary
    told = {one.what: one.value for one in stall.evidence}
    assert (told["SM clock"], told["temperature"], told["power"]) == (720_000_000, 91.0, 301.0)
    assert stall.advice


def test_a_clock_that_is_a_little_lower_is_a_bottleneck() -> None:
    host = Host()
    usual(host)
    usual(host, 40, 0.0625, sm_clock_hertz=1_440_000_000, reasons=("hw_thermal",))
    rank = host.rank
    (found,) = [one for one in rank.bottlenecks if one.cause == "gpu_throttle"]
    assert found.seconds == pytest.approx(40 * 0.2, rel=0.15)
    assert rank.verdict.cause == "gpu_throttle"


@pytest.mark.parametrize(
    ("step", "more"),
    [
        (0.1, {"reasons": ("sw_power_cap",), "sm_clock_hertz": 1_700_000_000}),  # ordinary at full load
        (0.1, {"reasons": ("sync_boost",), "sm_clock_hertz": 900_000_000}),
        (0.1, {"reasons": ("hw_thermal",), "sm_clock_hertz": 1_800_000_000}),  # said, but nothing was lowered
        (0.1, {"reasons": None, "sm_clock_hertz": None}),
        (0.05, {"reasons": ("hw_thermal",), "sm_clock_hertz": 1_790_000_000}),
    ],
)
def test_what_is_no_throttling(step: float, more: dict[str, Any]) -> None:
    host = Host()
    usual(host)
    usual(host, 10, step, **more)
    assert "gpu_throttle" not in host.rank.lost


def test_a_gpu_that_idles_may_lower_its_clock() -> None:
    pace, now = GpuSpeed(), NS
    for _ in range(10):
        now += NS
        pace.add_sample(GpuSample(0, "g", at_ns=now, since_ns=now - NS, utilization=0.1, sm_clock_hertz=300_000_000,
                            sm_clock_max_hertz=1_980_000_000, reasons=("hw_thermal",)))  # fmt: skip
    assert pace.over(0, now) is None
    assert pace.whole() is None


def test_a_reason_without_clocks_is_believed() -> None:
    pace = GpuSpeed()
    pace.add_sample(GpuSample(0, "g", at_ns=2 * NS, since_ns=NS, utilization=1.0, reasons=("hw_slowdown",)))
    found = pace.over(NS, 2 * NS)
    assert found is not None
    assert (found.lost_ns, found.reasons) == (None, ("hw_slowdown",))
    assert pace.over(2 * NS, 8 * NS) is None, "long after the last reading nothing is known"


def test_memory_of_a_gpu_that_grows_is_told_with_who_holds_it() -> None:
    host = Host()
    for second in range(70):
        used = 20 * GB + second * GB // 2
        holders = (GpuHolder(PID, used - 5 * GB), GpuHolder(77, 5 * GB))
        sample = replace(reading(host, memory_used_bytes=used, memory_total_bytes=80 * GB), holders=holders)
        host.second(gpus=(sample, reading(host, 1, pid=1, memory_used_bytes=second, memory_total_bytes=70)))
    (warning,) = host.rank.warnings
    assert warning.cause == "gpu_memory"
    assert warning.eta_seconds == pytest.approx((80 - 20 - 34.5) * 2, rel=0.1)
    assert "memory of GPU 0 grows by" in warning.summary
    assert {one.pid: one.value for one in warning.evidence if one.pid} == {PID: used - 5 * GB, 77: 5 * GB}
    assert any("other processes" in line for line in warning.advice)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", ("0000:3b:00", 79)),
        ("NVRM: Xid (PCI:0000:3B:00): 31, pid=12, name=python, Ch 00000008", ("0000:3b:00", 31)),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", None),
    ],
)  # fmt: skip
def test_xids_of_the_kernel_log(line: str, told: tuple[str, int] | None) -> None:
    found = xid_logged(line, 5)
    assert (None if found is None else (found.bus_id, found.code)) == told


def test_one_bus_written_in_two_ways() -> None:
    assert same_bus("00000000:3B:00.0", "0000:3b:00")
    assert not same_bus("00000000:3B:00.0", "0000:3c:00")
    assert not same_bus("", "0000:3c:00")
