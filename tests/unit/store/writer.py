"""Writes history as the daemon does, publishes after it, and says what it published: to be killed at any time."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.unit.runtime.telling import Training
from trainprobe.config.schema import Retention
from trainprobe.model.report import Report
from trainprobe.runtime.history.keeper import HistoryKeeper
from trainprobe.runtime.publishing import rundir
from trainprobe.runtime.publishing.publish import uid_of
from trainprobe.wire import report as wire


def main(directory: Path) -> None:
    published = directory / "report.json"
    training = Training()
    history = HistoryKeeper(
        directory / "state", Retention(), complain=lambda what, _: print(what, file=sys.stderr), uid_of=uid_of
    )
    last = wire.decode(published.read_bytes()) if published.exists() else None
    found = history.open(last)
    for run in found.live:
        go_on(training, Report(generated=last.generated if last else 0.0, runs=[run]))
    print("open", flush=True)
    while True:
        report, steps = training.tell()
        history.add_report(report, steps, {})
        rundir.write(str(published), wire.encode(report).encode(), mode=0o640)
        stalls = report.runs[0].ranks[0].stalls
        ended = [stall.id for stall in stalls if stall.end is not None]
        print(training.second, len(training.stalls), ended[-1] if ended else "-", flush=True)
        time.sleep(0.0005)


def go_on(training: Training, left: Report) -> None:
    """As the core does when it is found again: the stalls and the time of before are its own."""
    rank = left.runs[0].ranks[0]
    training.second = rank.steps.count // 20
    training.stalls, training.saved = rank.stalls, rank.checkpoints


if __name__ == "__main__":
    main(Path(sys.argv[1]))
