"""What all recordings come to, as JSON, in a language whose sentences are their ids.

A program of its own: that language has to be there before anything is said.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from tests.replay.replay import RECORDINGS, name_of, replay, report_halfway
from trainprobe.cli.style import Style
from trainprobe.cli.text import text_of
from trainprobe.model import message
from trainprobe.model.report import SENTENCES, Rank, Report
from trainprobe.pipeline.report.restart_merge import closed, continued, cut
from trainprobe.wire import report as wire
from trainprobe_exporters.exposition import Format, exposition
from trainprobe_exporters.families import SeriesTable


def speak_ids() -> None:
    for name in message.TEMPLATES:
        message.TEMPLATES[name] = message.Template(name, name)


def outcome(recording: Path) -> dict[str, Any]:
    """Report, restart in the middle, metrics and text of one recording, in the language of the process."""
    told, (_, report) = wire.decode(wire.encode(report_halfway(recording))), replay(recording)
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


def main() -> None:
    speak_ids()
    print(json.dumps({name_of(recording): outcome(recording) for recording in RECORDINGS}))


if __name__ == "__main__":
    main()
