"""What all recordings come to, as JSON: in English, and in a language whose sentences are their ids.

A program of its own, with a process for each language: that has to be there before anything is said.
"""

from __future__ import annotations

import dataclasses
import json
from multiprocessing import get_context
from typing import Any

from tests.replay.replay import RECORDINGS, frames_of, name_of
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.model import message
from trainprobe.model.frame import Frame
from trainprobe.model.report import SENTENCES, Rank, Report
from trainprobe.pipeline import Pipeline
from trainprobe.pipeline.report.restart_merge import closed, continued, cut
from trainprobe.wire import report as wire
from trainprobe_exporters.exposition import Format, exposition
from trainprobe_exporters.families import SeriesTable

LANGUAGES = ("en", "ids")
FRAMES: dict[str, list[Frame]] = {}
"""Of each recording: read once, before the processes part."""


def speak_ids() -> None:
    for name in message.TEMPLATES:
        message.TEMPLATES[name] = message.Template(name, name)


def outcome(frames: list[Frame]) -> dict[str, Any]:
    """Report, restart in the middle, metrics and text of one recording."""
    pipeline, told = Pipeline(), Report()
    for number, frame in enumerate(frames):
        pipeline.step(frame)
        if number == len(frames) // 2:
            told = wire.decode(wire.encode(pipeline.report(frame.at)))
    report = pipeline.report(frames[-1].at)
    series = SeriesTable()
    series.fold(report)
    metrics = exposition(series.families(report.generated, fresh=True, own=()), Format.TEXT).decode().splitlines()
    return {
        "report": plain(report),
        "merged": [plain(one) for one in merged(told, report)],
        "metrics": [line for line in metrics if not line.startswith("process_")],
        "text": [len(line) - len(line.lstrip()) for line in text_of(report, Style(width=10**6)).splitlines()],
    }


def merged(told: Report, live: Report) -> list[Rank]:
    """Each rank as of a daemon that was restarted in the middle: its stall goes on, or is closed."""
    before = {rank.pid: rank for run in told.runs for rank in run.ranks}
    ranks = [rank for run in live.runs for rank in run.ranks if rank.pid in before]
    return [continued(end(before[rank.pid]), rank) for rank in ranks for end in (cut, closed)]


def plain(value: object) -> object:
    """As JSON, each text beside its message replaced by the message's id."""
    return json.loads(json.dumps(value, default=_members))


def _members(value: Any) -> dict[str, Any]:
    found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for text, source in SENTENCES.get(value.__class__, {}).items():
        said, messages = found[text], found[source]
        if isinstance(said, list):
            found[text] = [one.id for one in messages] or said
        elif messages is not None:
            found[text] = messages.id
            found["said"] = said
    return found


def outcomes(language: str) -> dict[str, Any]:
    if language == "ids":
        speak_ids()
    return {name: outcome(frames) for name, frames in FRAMES.items()}


def main() -> None:
    FRAMES.update((name_of(path), frames_of(path)) for path in RECORDINGS)
    with get_context("fork").Pool(len(LANGUAGES), maxtasksperchild=1) as processes:
        made = processes.map(outcomes, LANGUAGES, chunksize=1)
    print(json.dumps(dict(zip(LANGUAGES, made))))


if __name__ == "__main__":
    main()
