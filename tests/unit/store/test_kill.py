"""kill -9 while history is written: nothing published is lost, nothing is there twice, no file is damaged."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.programs import ROOT, environment
from tests.unit.runtime.telling import NOW, RUN
from trainprobe.cli import published
from trainprobe_exporters.history import History as Reader

KILLS = 5


def lived(directory: Path, chance: random.Random) -> list[str]:
    """One life of a writer; the lines that it could say."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.store.writer", str(directory)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(),
    )  # fmt: skip
    assert writer.stdout is not None
    assert writer.stderr is not None
    said: list[str] = []
    if chance.random() < 0.9:  # else: killed while it opens
        first = writer.stdout.readline()
        assert first == "open\n", writer.stderr.read()
        said = [writer.stdout.readline() for _ in range(chance.randrange(120))]
    time.sleep(chance.random() * 0.002)
    writer.send_signal(signal.SIGKILL)
    rest, complaints = writer.communicate()
    assert complaints == ""
    return [line for line in [*said, *rest.splitlines(keepends=True)] if line.endswith("\n") and line != "open\n"]


def killed(directory: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    second = stalls = 0
    for _ in range(times):
        said = lived(directory, chance)
        if said:
            told, begun, _ = said[-1].split()
            assert int(told) > second, "it went back: what was published is lost"
            second, stalls = int(told), int(begun)
    check(directory, second, stalls)


def check(directory: Path, second: int, stalls: int) -> None:
    """The history holds every stall that was published, once; and every step row that was published, once."""
    lived(directory, random.Random(1))  # takes in what was published last
    connection = sqlite3.connect(directory / "state" / "history.sqlite")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows = connection.execute('SELECT id, start, "end" FROM stalls ORDER BY start').fetchall()
    connection.close()
    begun = [start for _, start, _ in rows]
    assert begun[:stalls] == [NOW + 10 * (n + 1) for n in range(stalls)]
    assert all(end is not None for _, _, end in rows[: stalls - 1])
    reader = Reader(directory / "state" / "published")
    ids = [told.stall.id for told in reader.stalls()]
    assert len(ids) == len(set(ids))
    assert set(ids) >= {name for name, _, _ in rows[: stalls - 1]}
    assert not list((directory / "state").glob("*.damaged-*"))
    kept = published.together(
        published.decoded(directory / "report.json"), published.kept(directory / "state")
    )  # fmt: skip
    assert kept is not None
    assert [run.run for run in kept.runs] == [RUN]
    assert kept.runs[0].ranks[0].steps.count >= second * 20
    fine = [row for row in reader.steps(RUN, "0") if row.count == 1]
    starts = [row.start for row in fine]
    assert len(starts) == len(set(starts))


@pytest.mark.timeout(180)
def test_kill_nine_at_any_point(tmp_path: Path) -> None:
    killed(tmp_path, KILLS, seed=int(os.environ.get("TRAINPROBE_SEED", "1")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_two_hundred_kills(tmp_path: Path) -> None:
    killed(tmp_path, 200, seed=random.randrange(1 << 30))
