"""Recordings cut short and given another ending: what was lost stays the verdict, unless the training failed."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace

import pytest

from tests.contract.contradictions import contradictions
from tests.replay.replay import FOLDER, frames_of
from trainprobe.model.cells import RowKind
from trainprobe.model.event import MarkRow, ProcessEvent, ProcessEventKind, RunEnded
from trainprobe.model.frame import Frame
from trainprobe.model.moment import NS, Moment
from trainprobe.model.report import Rank, Report
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.rank.state import RankState
from trainprobe.wire import report as wire

TRUTH = json.loads((FOLDER / "truth.json").read_text()) | json.loads((FOLDER / "frameworks.json").read_text())
NAMES = (
    *("checkpoint", "logging", "data_cpu", "data_storage", "data_inline", "worker_startup", "storage_hang"),
    *("network", "worker_hang", "deadlock", "cpu_throttled", "fake_batching", "gc_pause", "clean", "suspended"),
    *("collective_wait", "drift", "gpu_memory", "hf_trainer_callback", "accelerate_frequent_saves", "accelerate_lock"),
    *("batchgenerators_contended", "mmcv_evaluation"),
)
KEPT = 0.9
"""Of the frames."""
ENDINGS: dict[str, tuple[int | None, int | None, tuple[tuple[int, int, str], ...]]] = {
    "exception": (1, None, ()),
    "interrupted": (None, 2, ((2, 0, "kworker/0:1"), (2, -1, "python"))),
    "killed": (None, 9, ((9, 4242, "bash"),)),
    "own_kill": (None, 15, ((15, -1, "python"),)),
    "timeout": (None, 15, ((15, 4242, "timeout"),)),
    "watchdog": (None, 6, ((6, -1, "pt_nccl_watchdg"),)),
    "oom": (None, 9, ((9, 0, "python"),)),
    "finished": (0, None, ()),
}
"""Exit code, fatal signal, and the signals: number, sender (-1: itself, 0: the kernel), its name."""
FAILURES = ("exception", "killed", "watchdog")


@dataclass(frozen=True)
class Cut:
    """A recording without its end."""

    pipeline: bytes
    """Pickled: read back for each ending, which takes a tenth of what a deep copy takes."""
    at: Moment
    """Of its last frame."""
    before: Rank
    """The driver then."""


@pytest.fixture(scope="module", params=NAMES)
def cut(request: pytest.FixtureRequest) -> Cut:
    frames = frames_of(FOLDER / f"{request.param}.jsonl.gz")
    kept, pipeline = frames[: int(KEPT * len(frames))], Pipeline()
    for frame in kept:
        pipeline.step(frame)
    at = kept[-1].at
    report = pipeline.report(at)
    assert contradictions(json.loads(wire.encode(report))) == []
    return Cut(pickle.dumps(pipeline), at, rank_of(report, TRUTH[request.param]["pid"]))


def rank_of(report: Report, pid: int) -> Rank:
    return next(rank for run in report.runs for rank in run.ranks if rank.pid == pid)


def ended(cut: Cut, how: str) -> Rank:
    """The rank after another ending, at once."""
    code, signal, signals = ENDINGS[how]
    pipeline: Pipeline = pickle.loads(cut.pipeline)
    pid, at = cut.before.pid, cut.at
    run = next(run for run in pipeline.runs.values() if pid in run.ranks.by_pid)
    rank: RankState = run.ranks.by_pid[pid][0]
    latest, sample = rank.ledger.latest, rank.open.sample
    assert latest is not None
    cells = sample.cells if sample is not None and sum(sample.cells) > sum(latest.cells) else latest.cells
    now = at.monotonic_ns
    sent = [
        ProcessEvent(
            ProcessEventKind.SIGNAL, now, pid, signal=number, sender_pid=pid if by < 0 else by, sender_comm=name,
            by_user=by != 0,
        )
        for number, by, name in signals
    ]  # fmt: skip
    row: MarkRow = replace(latest, kind=RowKind.EXIT, at_ns=now, cells=tuple(cells), files=(), lengths=())
    if how == "oom":
        sent.append(ProcessEvent(ProcessEventKind.OOM, now, pid))
    exit_ = ProcessEvent(ProcessEventKind.EXIT, now, pid, 1, "python", code, signal)
    pipeline.step(Frame(at, (*sent, row, exit_, RunEnded(run.started.run, now))))
    return rank_of(pipeline.report(Moment(now + NS, at.wall_ns + NS)), pid)


@pytest.mark.parametrize("how", ENDINGS)
def test_the_verdict_survives_an_ending_that_is_no_failure(how: str, cut: Cut) -> None:
    before, rank = cut.before, ended(cut, how)
    assert before.exit is not None
    assert before.exit.ending == "running"
    assert rank.exit is not None
    assert rank.exit.ending == how
    hung = before.stalls and before.stalls[-1].end is None and before.stalls[-1].seconds >= 5
    if how == "oom":
        assert (rank.verdict.kind, rank.verdict.cause) == ("end", "oom_kill")
    elif how in FAILURES and not hung:
        assert (rank.verdict.kind, rank.verdict.cause) == ("end", None)
        assert rank.verdict.summary.endswith(f"after {rank.steps.count} steps")
    else:
        assert (rank.verdict.kind, rank.verdict.cause) == (before.verdict.kind, before.verdict.cause)
    accounted = rank.productive_seconds + sum(rank.counters.phase_seconds.values()) + sum(rank.lost.values())
    assert accounted == pytest.approx(rank.wall_seconds, rel=1e-6)
