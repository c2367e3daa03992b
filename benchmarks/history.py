"""What the history costs the daemon: CPU per second of training at 20 steps a second, and bytes on the disk.

    .venv/bin/python -m benchmarks.history [--seconds 300] [--stall-every 60]

A real core is fed with a training on paper; each told second the loop's part (taking the steps, noting what the next
process needs, handing over) and the history's thread are timed by their own CPU clocks.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.builders.driver import START, Driver, moment, played
from trainprobe.collect.procfs import Proc
from trainprobe.config.schema import Retention
from trainprobe.model.cells import Leaf
from trainprobe.model.moment import NS
from trainprobe.pipeline import Pipeline
from trainprobe.runtime.history.keeper import HistoryKeeper
from trainprobe.runtime.publishing.publish import uid_of
from trainprobe.runtime.resume import ResumeStates

PAUSE = 0.01  # real seconds between told ones: the thread wakes up for each, as it does in the daemon


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300, help="told seconds (default: %(default)s)")
    parser.add_argument("--stall-every", type=int, default=60, help="seconds (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainprobe-history-") as directory:
        loop, thread, size = measured(Path(directory), options.seconds, options.stall_every)
    share = (loop + thread) / options.seconds
    print(f"loop {1e3 * loop / options.seconds:.3f} ms/s, thread {1e3 * thread / options.seconds:.3f} ms/s")
    print(f"together {100 * share:.3f} % of a CPU; {size / options.seconds:.0f} bytes a second on the disk")
    return 0 if share < 0.0005 else 1


def measured(directory: Path, seconds: int, stall_every: int) -> tuple[float, float, int]:
    """(CPU seconds in the loop, in the thread, bytes written)."""
    history = HistoryKeeper(directory, Retention(), complain=print, uid_of=uid_of)
    history.open()
    driver, pipeline = Driver(), Pipeline()
    driver.begin()
    noted = ResumeStates(pipeline, Proc())
    loop, begun = 0.0, thread_seconds(history)
    for second in range(1, seconds + 1):
        train(driver, pipeline, second, stall=second % stall_every == 0)
        at = moment(driver.now)
        report = pipeline.report(at)
        if pipeline.stalled or second % 2:  # as History.due() has it
            began = time.thread_time()
            history.add_report(report, pipeline.take_steps(at), noted.at(at.monotonic_ns))
            loop += time.thread_time() - began
        time.sleep(PAUSE)
    thread = thread_seconds(history) - begun
    history.close()
    return loop, thread, sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def train(driver: Driver, pipeline: Pipeline, second: int, *, stall: bool) -> None:
    """One second of training: twenty steps, or a checkpoint of a second in between."""
    if stall:
        driver.write("/out/model.pth", 200_000_000, 0.9)
    while driver.now < START + (second + 1) * NS:
        driver.spend(0.0005, Leaf.RUNQUEUE)
        driver.step()
    played(driver, pipeline)


def thread_seconds(history: HistoryKeeper) -> float:
    """CPU time of the history's thread."""
    assert history._thread is not None
    text = Path(f"/proc/self/task/{history._thread.native_id}/schedstat").read_text()
    return int(text.split()[0]) / NS


if __name__ == "__main__":
    raise SystemExit(main())
