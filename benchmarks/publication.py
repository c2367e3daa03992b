"""What a publication costs on a full host: 64 runs that go on, each with a list of 200 stalls.

``python -m benchmarks.publication [--runs N] [--users N]``: the runs live on paper, one second of training between two
publications. ``one``: one more stall in one run, the others made even steps; ``calm``: even steps only, each run's part
is made anew; ``stalls``: one more stall in every run. CPU of the report, of its bytes, and of
everything together, the median of the publications. Exit code 0: within the limit.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from tests.builders.driver import Driver, moment, played
from trainprobe.model.event import RankSeen, RunStarted
from trainprobe.model.moment import NS
from trainprobe.pipeline import Pipeline
from trainprobe.runtime import garbage_collection
from trainprobe.runtime.publishing.publish import LIMIT, Publisher

RUNS, STALLS, APART = 64, 200, 12
KINDS = ("one", "calm", "stalls")
FORWARD_SECONDS = 1.0
LIMIT_SECONDS = 0.020
FIRST_UID = 100_000
SHARED_MEMORY = "/dev/shm"  # a tmpfs, as /run is where the daemon publishes


class Host:
    """Runs that train on paper, all alike."""

    def __init__(self, runs: int = RUNS, stalls: int = STALLS, users: int = 1) -> None:
        driver = Driver()
        driver.begin()
        _train(driver, 60)
        for number in range(stalls):
            _save(driver, number)
        first = played(driver)
        (name,) = first.runs
        self.pipeline = Pipeline()
        self.drivers = [replace(driver, pid=driver.pid + n, tid=driver.pid + n) for n in range(runs)]
        for number, one in enumerate(self.drivers):
            one.cells, one.pool, one.files, one.events = list(driver.cells), list(driver.pool), {}, []
            started = first.runs[name].started
            user = str(FIRST_UID + number % users)
            run = f"train.py-{number:08x}"
            one.events = [
                RunStarted(run, started.at_ns, one.pid, started.command, user, f"/home/{user}"),
                RankSeen(run, started.at_ns, one.pid, None, started.at_ns),
            ]
            played(one, self.pipeline)
            (mine,) = self.pipeline.runs[run].ranks
            theirs = copy.deepcopy(first.runs[name].ranks.by_pid[driver.pid][0])
            theirs.seen, theirs.tid = mine.seen, one.tid
            self.pipeline.runs[run].ranks.by_pid[one.pid] = [theirs]
        self._saves = stalls

    def train(self, kind: str) -> None:
        """A second or so of every run."""
        self._saves += 1
        for driver in self.drivers:
            if kind == "stalls" or (kind == "one" and driver is self.drivers[self._saves % len(self.drivers)]):
                _save(driver, self._saves)
            else:
                _train(driver, 1)
            played(driver, self.pipeline)

    @property
    def now(self) -> int:
        return self.drivers[0].now


def _train(driver: Driver, steps: int) -> None:
    for _ in range(steps):
        driver.step(forward=FORWARD_SECONDS)


def _save(driver: Driver, number: int) -> None:
    """Steps, and one that saves."""
    _train(driver, APART)
    driver.fetch()
    driver.spend(FORWARD_SECONDS)
    driver.backward()
    driver.optimizer()
    driver.write(f"/home/user/out/epoch_{number}.pth", 246_000_000, 0.3, 0.9)


def publications(host: Host, publisher: Publisher, count: int, kind: str) -> list[tuple[float, float]]:
    """CPU seconds of each: of the report, and of what is done with it."""
    out = []
    now = host.now
    for _ in range(count):
        host.train(kind)
        now = now + NS // 4 if kind == "one" else host.now
        begun = time.process_time()
        report = host.pipeline.report(moment(now), reuse=True)
        made = time.process_time()
        publisher.publish(report, host.now)
        out.append((made - begun, time.process_time() - made))
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publication", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--users", type=int, default=1)
    parser.add_argument("--count", type=int, default=15, help="publications of each kind (%(default)s)")
    parser.add_argument("--python", help=argparse.SUPPRESS)  # `make nightly` gives it to every benchmark
    options = parser.parse_args(arguments)
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="trainprobe-publication-", dir=SHARED_MEMORY) as place:
        host, publisher = Host(options.runs, users=options.users), Publisher(Path(place) / "trainprobe")
        publisher.open()
        garbage_collection.make_rare()  # as the daemon does
        for name in KINDS:
            publications(host, publisher, 3, name)
            found = publications(host, publisher, options.count, name)
            both = median(sum(one) for one in found)
            worst = max(worst, both)
            size = (Path(place) / "trainprobe" / "report.json").stat().st_size
            print(
                f"{name:>7}: {both * 1e3:6.1f} ms of CPU: report {median(r for r, _ in found) * 1e3:.1f}, "
                f"published {median(p for _, p in found) * 1e3:.1f} ({size / LIMIT:.0%} of the limit)"
            )
        publisher.close()
    print(f"limit {LIMIT_SECONDS * 1e3:.0f} ms: {'ok' if worst <= LIMIT_SECONDS else 'OVER'}")
    return 0 if worst <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
