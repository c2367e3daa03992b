"""A recording replayed as ``trainprobe replay`` does it."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from trainprobe.model.frame import Frame
from trainprobe.model.moment import Moment
from trainprobe.model.report import Report
from trainprobe.pipeline import Pipeline
from trainprobe.wire.recording import read_frames, read_header

FOLDER = Path(__file__).parent / "recordings"
RECORDINGS = sorted(FOLDER.glob("*.jsonl.gz"))


def as_it_is(frame: Frame) -> Frame:
    """The frame unchanged."""
    return frame


def name_of(recording: Path) -> str:
    """The recording's name in ``truth.json``, in ``frameworks.json`` and in the docs."""
    return recording.name.partition(".")[0]


@cache
def frames_of(recording: Path) -> list[Frame]:
    """What was recorded. Kept, 2 MB of each: those who change a recording's frames do so in several ways."""
    with gzip.open(recording) as lines:
        read_header(lines)
        return list(read_frames(lines))


def replay(recording: Path, change: Callable[[Frame], Frame] = as_it_is) -> tuple[Pipeline, Report]:
    """The pipeline after the last frame, and its report then: for reading, others get the same objects."""
    replayed = _replay(recording, change)
    return replayed.pipeline, replayed.report


def report_halfway(recording: Path) -> Report:
    """The report after half of the frames."""
    replayed = _replay(recording, as_it_is)
    pipeline: Pipeline = pickle.loads(replayed.halfway)
    return pipeline.report(replayed.halfway_at)


class _Replayed(NamedTuple):
    pipeline: Pipeline
    report: Report
    halfway: bytes
    """The pipeline then, pickled: a report would change what it keeps for the next one."""
    halfway_at: Moment


@cache
def _replay(recording: Path, change: Callable[[Frame], Frame]) -> _Replayed:
    """With each argument in its place: what is left out is another key to a cache than its default."""
    pipeline, frames, halfway = Pipeline(), frames_of(recording), b""
    middle = len(frames) // 2
    for number, frame in enumerate(frames):
        pipeline.step(change(frame))
        if number == middle and change is as_it_is:
            halfway = pickle.dumps(pipeline)
    return _Replayed(pipeline, pipeline.report(frames[-1].at), halfway, frames[middle].at)


def replay_named(name: str, change: Callable[[Frame], Frame] = as_it_is) -> Report:
    """The report of the recording with this name."""
    return replay(FOLDER / f"{name}.jsonl.gz", change)[1]
