"""A fixed piece of work takes its time, and about the same again; where others run beside it, too."""

from __future__ import annotations

from trainprobe.collect import cpu_speed_probe
from trainprobe.collect.host import HostReader
from trainprobe.model.moment import NS
from trainprobe.model.sample import HostSample
from trainprobe.pipeline.busy import CpuInUse


def test_it_takes_the_time_of_a_processor_and_little_of_it() -> None:
    readings = sorted(cpu_speed_probe.now() for _ in range(20))
    assert 1_000 < readings[0] < NS // 1000
    assert readings[10] < 3 * readings[0]


def test_the_host_tells_it_and_a_run_keeps_what_it_was_over_time() -> None:
    sample = HostReader().read()
    assert isinstance(sample, HostSample)
    assert sample.pace_ns
    busy = CpuInUse()
    assert busy.paces_ns == []
    for at, ns in enumerate((30_000, 26_000, 90_000)):
        busy.add_sample(HostSample(cpus=2, idle_ns=at, pace_ns=ns), at * NS)
    assert busy.paces_ns == [30_000, 26_000, 90_000]
    for at in range(3, 67):
        busy.add_sample(HostSample(cpus=2, idle_ns=at, pace_ns=30_000 if at < 35 else 40_000), at * NS)
    paces = busy.paces_ns
    assert len(paces) == 32
    assert (paces[5], paces[-1]) == (30_000, 40_000)
