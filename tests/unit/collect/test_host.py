from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from trainprobe.collect import cost, psi
from trainprobe.collect.host import HostReader
from trainprobe.collect.host_name import host_name
from trainprobe.collect.procfs import TICK_NS
from trainprobe.collect.source import Failed, Unavailable
from trainprobe.model.sample import DiskSample, HostSample


def test_this_host() -> None:
    sample = HostReader().read({"cpu.some": 1.0})
    assert isinstance(sample, HostSample)
    assert sample.memory_bytes
    assert sample.available_bytes
    assert sample.available_bytes < sample.memory_bytes
    assert sample.idle_ns
    assert sample.pressure == {"cpu.some": 1.0}


def test_the_name_in_a_container_is_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hostname").write_text("node7\n")
    assert host_name("/", f"{tmp_path}/") == "node7"
    assert host_name(f"{tmp_path}", f"{tmp_path}/") == os.uname().nodename, "no container"
    assert host_name("/", f"{tmp_path}/none/") == os.uname().nodename
    monkeypatch.setenv("TRAINPROBE_HOST_NAME", "told")
    assert host_name("/", f"{tmp_path}/") == "told"


def test_files_of_a_host(tmp_path: Path) -> None:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    (sys / "devices/sda/queue").mkdir(parents=True)
    (sys / "devices/sda/queue/rotational").write_text("1\n")
    (sys / "devices/sda/sda1").mkdir()
    (sys / "devices/c0d0").mkdir()
    (sys / "class/block").mkdir(parents=True)
    for name, place, number in (("sda", "sda", "8:0"), ("sda1", "sda/sda1", "8:1"), ("cciss!c0d0", "c0d0", "104:0")):
        (sys / "devices" / place / "dev").write_text(f"{number}\n")
        (sys / "class/block" / name).symlink_to(sys / "devices" / place)
    proc.mkdir()
    (proc / "meminfo").write_text(
        "MemTotal: 100 kB\nMemFree: 30 kB\nMemAvailable: 40 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n"
    )
    (proc / "vmstat").write_text("pgpgin 4\npswpin 77\npswpout 3\n")
    (proc / "stat").write_text("cpu  10 0 20 300 40 0 0 7 0 0\ncpu0 1 2 3 4 5\n")
    (proc / "diskstats").write_text(
        "   8       0 sda 10 0 800 5 20 0 1600 9 0 333 14 0 0 0 0 0 0\n"
        "   8       1 sda1 5 0 80 5 0 0 0 9 0 33 14 0 0 0 0 0 0\n"
        "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0\n"
        "   1       0 ram0 5 0 0 0 5 0 0 0 0 0 0\n"
        " 104       0 cciss/c0d0 1 0 8 5 0 0 0 9 0 1 14\n"
        " 253       0 gone 1 0 8 5 0 0 0 9 0 1 14\n"
    )
    sample = HostReader(str(proc), str(sys)).read()
    assert isinstance(sample, HostSample)
    assert (sample.memory_bytes, sample.available_bytes) == (100 << 10, 40 << 10)
    assert (sample.swap_used_bytes, sample.swap_size_bytes, sample.swap_in_pages) == (6 << 10, 10 << 10, 77)
    assert (sample.idle_ns, sample.steal_ns, sample.pressure) == (340 * TICK_NS, 7 * TICK_NS, None)
    assert sample.disks == (
        DiskSample("sda", 8 << 20, 333, 800 * 512, 1600 * 512, True),
        DiskSample("sda1", 8 << 20 | 1, 33, 80 * 512, 0, True),
        DiskSample("cciss/c0d0", 104 << 20, 1, 8 * 512, 0, None),
    )


def test_a_host_whose_figures_cannot_be_read_is_a_failure_that_names_the_file(tmp_path: Path) -> None:
    outcome = HostReader(str(tmp_path)).read()
    assert isinstance(outcome, Failed)
    assert f"{tmp_path}/meminfo" in str(outcome.reason)
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\n")
    assert isinstance(HostReader(str(tmp_path)).read(), Failed)


@pytest.mark.filterwarnings("error")
def test_a_kernel_that_does_not_count_swapping_is_no_warning(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemFree: 30 kB\nMemAvailable: 40 kB\n")
    for name in ("stat", "diskstats"):
        (tmp_path / name).write_bytes(Path("/proc", name).read_bytes())
    sample = HostReader(str(tmp_path)).read()
    assert isinstance(sample, HostSample)
    assert sample.swap_in_pages == 0


def test_pressure_in_seconds(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/io").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0 avg60=0 avg300=0 total=x\n"
    )
    assert psi.read(str(tmp_path)) == {"io.some": 2.5}


def test_a_host_without_pressure_says_how_to_get_it(tmp_path: Path) -> None:
    outcome = psi.read(str(tmp_path))
    assert isinstance(outcome, Unavailable)
    assert "psi=1" in str(outcome.remedy)


def test_own_cost_counts_what_is_burned() -> None:
    before = cost.read()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    after = cost.read(1.5, {"switch": 3})
    assert 0.04 <= after.cpu_seconds - before.cpu_seconds < 2
    assert after.rss_bytes > 1 << 20
    assert (after.bpf_seconds, after.bpf_runs) == (1.5, {"switch": 3})
