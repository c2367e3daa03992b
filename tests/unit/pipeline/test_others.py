"""What other programs use of a host's processors, from two counters that are read at different times."""

from __future__ import annotations

import pytest

from trainprobe.model.moment import NS
from trainprobe.model.sample import HostSample
from trainprobe.pipeline.busy import OtherPrograms

DRIVER, WORKER, LATER = (1, 10), (2, 20), (3, 30)


def host(seconds: float, used: float) -> HostSample:
    """Two processors, of which ``used`` were in use since the host began."""
    return HostSample(cpus=2, idle_ns=int(seconds * (2 - used) * NS))


def test_others_are_what_is_used_without_ones_own_processes() -> None:
    others = OtherPrograms()
    others.add_sample(host(10, 1.5), 10 * NS)
    assert others.read({DRIVER: 5 * NS, WORKER: 1 * NS}, 10 * NS) is None
    others.add_sample(host(20, 1.5), 20 * NS)
    assert others.read({DRIVER: 14 * NS, WORKER: 2 * NS, LATER: 9 * NS}, 20 * NS) == pytest.approx(0.25)


def test_readings_that_follow_each_other_closely_are_one() -> None:
    others = OtherPrograms()
    others.add_sample(host(10, 1.0), 10 * NS)
    others.read({DRIVER: 0}, 10 * NS)
    others.add_sample(host(12, 1.0), 12 * NS)
    assert others.read({DRIVER: 0}, 12 * NS) is None
    others.add_sample(host(15, 1.0), 15 * NS)
    assert others.read({DRIVER: 0}, 15 * NS) == pytest.approx(0.5)


def test_a_host_that_was_not_read_again_says_nothing() -> None:
    others = OtherPrograms()
    others.add_sample(host(10, 1.0), 10 * NS)
    others.read({DRIVER: 0}, 10 * NS)
    assert others.read({DRIVER: 5 * NS}, 20 * NS) is None
