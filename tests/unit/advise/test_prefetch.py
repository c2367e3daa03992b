"""How many batches a training has made ahead: what its report and its advice begin with."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replay.replay import replay_named
from trainprobe.advise.loader import Loader, prefetched
from trainprobe.derive.memo import Memo
from trainprobe.model.cause import Cause
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS
from trainprobe.model.report import Memory
from trainprobe.pipeline.report.stalls import _ahead
from trainprobe.pipeline.stalls import StallEntry


@pytest.mark.parametrize(("peak", "factor"), [(None, 2), (300, 2), (498, 2), (613, 2), (900, 4), (1700, 8)])
def test_so_many_batches_a_worker_as_were_seen_at_once(peak: int | None, factor: int) -> None:
    assert prefetched(Memory(shm_bytes_per_batch=100.0, shm_peak_bytes=peak), workers=2) == factor
    assert prefetched(Memory(shm_peak_bytes=peak), workers=2) == 2, "no batch was measured"


def test_a_report_proposes_no_factor_that_the_training_has_already() -> None:
    def more(frame: Frame) -> Frame:
        held = (replace(p, shm_held_bytes=6 * (p.shm_held_bytes or 0)) for p in frame.processes)
        return replace(frame, processes=tuple(held))

    (run,) = replay_named("timm_slow_batch", more).runs
    (rank,) = run.ranks
    has = prefetched(rank.memory, rank.workers.peak)
    said = [m.params["factor"] for s in rank.stalls for m in s.advice_messages if m.id == "advice.made_ahead"]
    assert has > 8
    assert all(factor > has for factor in said), (has, said)


@pytest.mark.parametrize(("lost", "advised"), [(2.0, True), (0.05, False)])
def test_a_report_proposes_a_factor_only_where_late_batches_cost_enough(lost: float, advised: bool) -> None:
    """As the advice does: of a run of 100 s."""
    rank: Any = SimpleNamespace(
        stalls=SimpleNamespace(memo=Memo(), entries=[StallEntry(0, 0, 0.4 * NS, Cause.DATA_CPU, {}, 100, 100, 1)]),
        memory=Memory(),
        lives=SimpleNamespace(peak=2),
    )
    load = Loader(2, 0.1, 0.0, 1.0, 0.1, 0.0, 0.1, 8)
    assert (_ahead(rank, load, lost, worth=1.0) is not None) == advised


def test_what_cuda_maps_of_shared_memory_is_no_batch() -> None:
    """PyTorch Geometric on an H200 with torch's default: 21 MB that the driver maps, batches of 0.56 MB."""
    (run,) = replay_named("pyg_on_gpu").runs
    (rank,) = run.ranks
    assert (rank.memory.shm_bytes or 0) > 20_000_000
    assert prefetched(rank.memory, rank.workers.peak) == 2
