"""The sum of what watching costs is the sum of its parts, and says what only the counting adds."""

from __future__ import annotations

import random
import re

import pytest

from benchmarks.footprint import Footprint, show


def measured(rng: random.Random) -> Footprint:
    bare = rng.uniform(5e3, 9e3)
    return Footprint(
        ready_seconds=1.0,
        ready_again_seconds=0.3,
        rss_bytes=35_000_000,
        first_cpu_share=0.003,
        cpu_share=rng.uniform(0, 3e-3),
        cpu_limit=5e-3,
        bpf_share=rng.uniform(0.001, 0.003),
        hits_per_step=rng.uniform(5, 15),
        steps_per_second=rng.uniform(5, 30),
        bare_ns=bare,
        probed_ns=bare + rng.uniform(0, 4000),
        calls_per_second=2000,
        lost=0,
        settled_seconds=45,
        runs_per_second=rng.uniform(5e3, 2e4),
        counted_ns=26,
        training_cpus=rng.uniform(0.5, 2),
    )


def test_the_sum_and_its_parts_are_printed(capsys: pytest.CaptureFixture[str], rng: random.Random) -> None:
    found = measured(rng)
    show(found)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("all in"))
    total, bpf, traps, daemon, without, *of_cpu = (float(share) for share in re.findall(r"([0-9.]+)%", line))
    assert total == pytest.approx(bpf + traps + daemon, abs=0.002)
    assert without == pytest.approx(total - found.runs_per_second * 26e-7, abs=0.002)
    assert of_cpu == pytest.approx([total / found.training_cpus, without / found.training_cpus], abs=0.002)


def test_counting_is_never_more_than_was_counted(rng: random.Random) -> None:
    found = measured(rng)
    found.runs_per_second = 1e9
    assert found.counting_share == found.bpf_share
