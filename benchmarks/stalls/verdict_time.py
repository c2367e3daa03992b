"""When a verdict stood: a recording is replayed and asked, frame by frame, what a report would have said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.stalls.truth import NS, TrueStall, Truth, limit, median_step
from trainprobe.model.report import Report
from trainprobe.pipeline import Pipeline
from trainprobe.wire.recording import read_frames, read_header

PATIENCE = 3.0
"""Seconds after the end of a stall in which it may still be named."""


def passing(stall: TrueStall, truth: Truth) -> float:
    """When the stall limit passed, in UNIX seconds: the step's begin, an ordinary step, and the limit's excess."""
    begins = [truth.wall(i.stepping) for i in truth.iterations if truth.wall(i.stepping) <= stall.start + 0.001]
    step = begins[-1] if begins else stall.start
    return max(step + median_step(truth) + limit(truth), stall.start)


def stall_verdicts(recording: Path, stalls: Sequence[TrueStall], truth: Truth) -> list[float | None]:
    """Seconds from passing the limit to the first frame whose report names the stall rightly; None: never so."""
    passed = [passing(stall, truth) for stall in stalls]
    told: list[float | None] = [None] * len(stalls)
    with open(recording, "rb") as lines:
        core = Pipeline(host=read_header(lines).host)
        for frame in read_frames(lines):
            core.step(frame)
            core.wants()
            core.armed()
            at = frame.at.wall_ns / NS
            due = [i for i, stall in enumerate(stalls) if told[i] is None and stall.start <= at <= stall.end + PATIENCE]
            if due:
                report = core.report(frame.at)
                for i in due:
                    if _names(report, stalls[i]):
                        told[i] = max(at - passed[i], 0.0)
    return told


def death_verdict(recording: Path, pid: int, died: float) -> float | None:
    """Seconds from a worker's death (UNIX seconds) to the first frame whose report lists its exit."""
    with open(recording, "rb") as lines:
        core = Pipeline(host=read_header(lines).host)
        for frame in read_frames(lines):
            core.step(frame)
            core.wants()
            core.armed()
            at = frame.at.wall_ns / NS
            if at < died:
                continue
            report = core.report(frame.at)
            if any(exit_.pid == pid for run in report.runs for rank in run.ranks for exit_ in rank.workers.exits):
                return at - died
    return None


def _names(report: Report, stall: TrueStall) -> bool:
    for run in report.runs:
        for rank in run.ranks:
            for told in rank.stalls:
                end = told.end if told.end is not None else told.start + told.seconds
                if told.cause == stall.cause and told.start < stall.end and stall.start < end + 0.1:
                    return True
    return False
