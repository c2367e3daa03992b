"""The soak: daemon and exporter for hours, beside a crowd of short-lived processes and trainings that come and go.

``python -m benchmarks.soak --hours 2``. Meanwhile configurations are changed, good, bad and half-written ones; clients
scrape, ask with the token, and send nonsense; the daemon is stopped now and then as a suspended host would stop it. All
of it may be stopped, too. Exit code 0: no growth, and nothing lost that was not reported.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import programs
from benchmarks.programs import Daemon, Exporter, Json, ProgramError
from benchmarks.soak import judge
from benchmarks.soak.judge import Sample, Training
from benchmarks.stalls import torch_python
from trainprobe.pipeline import ENDED

HERE = Path(__file__).parent
TICK_SECONDS = 1.0
GAP_SECONDS = 30.0  # nothing of ours ran for longer than this: no time in which anything could grow
SAMPLE_SECONDS, SCRAPE_SECONDS, RELOAD_SECONDS, STOP_SECONDS = 15.0, 10.0, 20.0, 600.0
TRAINING_SECONDS = (60.0, 180.0)
STOPPED_SECONDS = 5.0
SETTLE_SECONDS = 20.0
KEPT_TRAININGS = ENDED + 2
GOOD = ("thresholds: {stall_factor: 2.0}\n", "retention: {days: 3}\n", "privacy: {labels: true}\n")
BAD = ("thresholds: {stall_factor: 0.1}\nprivcy: {}\n", "targets: [\n", "\0\xff", "- " * 5000)


class Soak:
    """What goes on, by the second."""

    def __init__(self, place: Path, daemon: Daemon, exporter: Exporter, options: argparse.Namespace) -> None:
        self._place = place
        self._daemon = daemon
        self._exporter = exporter
        self._options = options
        self._pids = {"daemon": daemon.process.pid, "exporter": exporter.process.pid}
        self._python = torch_python.find(options.python)
        self._chance = random.Random(options.seed)
        self._counted = place / "counted"
        self._begun = time.time()
        self._warm_hours = options.hours  # until the report holds as many ended runs as it ever does
        self._idle = 0.0  # seconds in which nothing of ours ran
        self._training: tuple[subprocess.Popen[bytes], Path, int] | None = None
        self._ended: list[tuple[float, str, Path, int]] = []  # when, pid as text, truth, losses before
        self._told: dict[str, tuple[int, int]] = {}
        self._lost = 0
        self._done = {"reloads": 0, "scrapes": 0, "stops": 0, "refused_scrapes": 0, "killed_trainings": 0}
        self.samples: list[Sample] = []
        self.trainings: list[Training] = []

    def run(self) -> None:
        """Raises ProgramError when one of the programs ends."""
        duties: list[tuple[Callable[[], None], Callable[[], float]]] = [
            (self._sample, lambda: SAMPLE_SECONDS),
            (self._scrape, lambda: SCRAPE_SECONDS),
            (self._reload, lambda: RELOAD_SECONDS),
            (self._stop_a_while, lambda: self._chance.uniform(0.5, 1.5) * STOP_SECONDS),
            (self._train, lambda: self._chance.uniform(*TRAINING_SECONDS)),
            (self._see_the_told, lambda: TICK_SECONDS),
        ]
        due = [time.monotonic() + pause() for _, pause in duties]
        last = time.monotonic()
        while time.time() - self._begun < self._options.hours * 3600:
            time.sleep(TICK_SECONDS)
            now = time.monotonic()
            if now - last > GAP_SECONDS:
                self._idle += now - last
            last = now
            for at, (duty, pause) in enumerate(duties):
                if now >= due[at]:
                    duty()
                    due[at] = time.monotonic() + pause()
            for name, process in (("daemon", self._daemon.process), ("exporter", self._exporter.process)):
                if process.poll() is not None:
                    raise ProgramError(f"the {name} ended with {process.returncode}: {self._daemon.said()[-2000:]}")
        self._wait_for_the_last()

    def result(self) -> Json:
        """Everything so far, with the verdict on it."""
        hours = self._hours()
        verdict = judge.judge(self.samples, self.trainings, self._warm_hours)
        spent = {name: _cpu_seconds(pid) for name, pid in self._pids.items()}
        crowd = int(self._counted.read_text() or 0) if self._counted.exists() else 0
        return {
            "hours": round((time.time() - self._begun) / 3600, 3), "running_hours": round(hours, 3),
            "short_lived": crowd, "short_lived_per_minute": round(crowd / max(hours * 60, 1e-9)),
            "pids_went_round": round(crowd / int(Path("/proc/sys/kernel/pid_max").read_text()), 1),
            "trainings": len(self.trainings), **self._done, "events_lost": self._lost, "cpu_seconds": spent,
            "slope_mb_per_hour": {name: round(value, 3) for name, value in verdict.slopes.items()},
            "wrong": verdict.wrong, "all_trainings": [asdict(one) for one in self.trainings],
            "samples": [asdict(one) for one in self.samples],
        }  # fmt: skip

    def close(self) -> None:
        if self._training is not None:
            programs.end(self._training[0])

    def _hours(self) -> float:
        return (time.time() - self._begun - self._idle) / 3600

    # What is measured

    def _sample(self) -> None:
        resident = {name: programs.resident(pid) for name, pid in self._pids.items()}
        files = {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in self._pids.items()}
        self.samples.append(Sample(self._hours(), resident, files, self._lost))
        if self._options.output:
            _write(self._options.output, self.result())

    def _see_the_told(self) -> None:
        """The runs go from the report some time after their end: what was told last is what counts."""
        report = self._daemon.report()
        self._lost = report["events_lost"]
        for run in report["runs"]:
            for rank in run["ranks"]:
                saved = sum(one["outcome"] == "complete" for one in rank["checkpoints"])
                self._told[str(rank["pid"])] = (rank["steps"]["count"], saved)
        for ended in [one for one in self._ended if time.monotonic() - one[0] > SETTLE_SECONDS]:
            self._ended.remove(ended)
            _, pid, truth, losses = ended
            made = json.loads(truth.read_text())
            if len(self.trainings) < KEPT_TRAININGS:
                self._warm_hours = max(self._options.warm_up / 60, self._hours())
            steps, saved = self._told.pop(pid, (None, None))
            self.trainings.append(Training(pid, made["steps"], made["saved"], steps, saved, self._lost - losses))

    # What goes on

    def _train(self) -> None:
        """One training at a time, some of them killed in the middle."""
        if self._training is not None:
            process, truth, losses = self._training
            if process.poll() is None and self._chance.random() < 0.8:
                return
            if process.poll() is None:
                process.kill()
                self._done["killed_trainings"] += 1
            self._training = None
            if process.wait() == 0:
                self._ended.append((time.monotonic(), str(process.pid), truth, losses))
        folder = Path(tempfile.mkdtemp(dir=self._place, prefix="training-"))
        truth = folder / "truth.json"
        steps, every = self._chance.randint(200, 1200), self._chance.randint(100, 300)
        script = str(self._options.script or HERE / "small_training.py")
        command = [self._python, script, str(steps), str(every), str(folder), str(truth)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._training = (process, truth, self._lost)

    def _wait_for_the_last(self) -> None:
        until = time.monotonic() + SETTLE_SECONDS + 5
        while self._ended and time.monotonic() < until:
            time.sleep(TICK_SECONDS)
            self._see_the_told()

    def _reload(self) -> None:
        """A file that is good, bad, or half there when it is read."""
        text = self._chance.choice(GOOD + BAD)
        file = self._place / "trainprobe.yaml"
        file.write_text(self._options.config + text[: self._chance.choice((len(text), len(text) // 2))])
        self._daemon.process.send_signal(signal.SIGHUP)
        file.write_text(self._options.config + text)
        self._exporter.process.send_signal(signal.SIGHUP)
        self._done["reloads"] += 1

    def _stop_a_while(self) -> None:
        """What a suspended host does to it: time passes, and nothing runs."""
        self._daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        self._daemon.process.send_signal(signal.SIGCONT)
        self._done["stops"] += 1

    def _scrape(self) -> None:
        if said := self._exporter.process.stderr:
            os.set_blocking(said.fileno(), False)
            said.read()  # or it would wait for us some day
        try:
            assert "trainprobe_build_info" in self._exporter.get("/metrics")
            asked = urllib.request.Request(f"{self._exporter.url}/api/v1/report")
            asked.add_header("Authorization", f"Bearer {self._exporter.token()}")
            with urllib.request.urlopen(asked, timeout=10) as answer:
                json.load(answer)
            self._done["scrapes"] += 1
        except (OSError, urllib.error.URLError):
            self._done["refused_scrapes"] += 1  # it was stopped, perhaps
        host, port = self._exporter.url.removeprefix("http://").rsplit(":", 1)
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1) as client:
            client.send(self._chance.randbytes(self._chance.randint(0, 200)))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    with tempfile.TemporaryDirectory(prefix="trainprobe-soak-") as name:
        place = Path(name)
        crowd = [sys.executable, str(HERE / "crowd.py"), name, str(options.per_minute), str(place / "counted")]
        crowd.append(str(options.seed))
        try:
            with (
                Daemon(place, options.config) as daemon,
                Exporter(place, daemon.directory / "report.json") as exporter,
                subprocess.Popen(crowd, stdin=subprocess.DEVNULL) as spawning,
            ):
                soak = Soak(place, daemon, exporter, options)
                try:
                    soak.run()
                    result = soak.result()
                finally:
                    soak.close()
                    spawning.kill()
        except (ProgramError, torch_python.NoTorch) as error:
            print(f"soak: {error}", file=sys.stderr)
            return 2
    if options.output:
        _write(options.output, result)
    for key, value in result.items():
        if key not in ("samples", "all_trainings"):
            print(f"{key}: {value}")
    return 1 if result["wrong"] else 0


def _write(path: Path, result: Json) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(result, indent=1))
    beside.rename(path)


def _cpu_seconds(pid: int) -> float:
    try:
        return programs.cpu_seconds(pid)
    except OSError:
        return 0.0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="how long (2)")
    parser.add_argument(
        "--warm-up",
        type=float,
        default=20.0,
        metavar="MINUTES",
        help="before growth counts (20), or longer: until 18 trainings have ended",
    )
    parser.add_argument("--per-minute", type=float, default=5000.0, help="short-lived processes (5000)")
    parser.add_argument("--output", type=Path, help="a file with everything so far, written anew with each sample")
    parser.add_argument("--config", default="", help="lines that every configuration of the daemon begins with")
    parser.add_argument("--script", type=Path, help="a copy of small_training.py to run instead, for a name of its own")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (1)")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    return parser.parse_args(arguments)
