"""The two hosts leave nothing behind, however a test on them ends."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks.stalls.host import CannotHere
from tests.observability.two_hosts import CGROUPS, NAME, two_hosts

pytestmark = [pytest.mark.kernel]


def left() -> list[str]:
    """Links, cgroups and mounts of two hosts made by this process."""
    own = f"{NAME}{os.getpid()}"
    links = [link.name for link in Path("/sys/class/net").glob(f"{own}*")]
    groups = [str(group) for root in (CGROUPS, CGROUPS / "unified") for group in root.glob(f"{own}*")]
    return links + groups


def test_nothing_is_left_of_two_hosts_on_which_a_test_failed(tmp_path: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    with pytest.raises(AssertionError, match="planted"):
        try:
            with two_hosts(tmp_path) as hosts:
                assert len(left()) >= 3
                started = [host.start("sleep", "100", log="sleep.log") for host in hosts]
                for host, process in zip(hosts, started, strict=True):
                    until = time.monotonic() + 5
                    while str(process.pid) not in (host.group / "cgroup.procs").read_text().split():
                        assert time.monotonic() < until
                        time.sleep(0.01)
                raise AssertionError("planted")
        except CannotHere as reason:
            if os.environ.get("TRAINPROBE_REQUIRE_KERNEL") == "1":
                raise
            pytest.skip(str(reason))
    assert [process.wait(5) for process in started] == [-9, -9]
    assert all(not Path(f"/proc/{host.holder}").exists() for host in hosts)
    assert left() == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
