"""``make demo``: a real PyTorch training with stalls planted in it, and what trainprobe says of it.

The daemon finds the training by itself and watches it from outside, through eBPF; the training knows nothing of it and
keeps a clock of its own. At the end the two are laid side by side. Exit code 0: every planted stall was named, with its
seconds within 5 % or 50 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import programs
from benchmarks.programs import Daemon, Exporter, ProgramError
from benchmarks.stalls import quiet, torch_python
from benchmarks.stalls.outside import Killed, Killer
from benchmarks.stalls.run import TRAININGS
from benchmarks.stalls.score import Match, match
from benchmarks.stalls.truth import Truth, planted_stalls, read
from trainprobe.model.amounts import seconds as seconds_of

WIDTH, STEP_SECONDS = 1024, 0.045
MB = 1_000_000
AT_MOST = 240.0  # seconds of a training that takes 75
LEAST = 0.2
"""A slow batch that the workers' head start hid to less than this was not felt as a stall."""
KEPT = programs.ROOT / "build" / "demo"
ALLOWED_SHARE, ALLOWED_SECONDS = 0.05, 0.05
METRICS = (
    "trainprobe_run_info", "trainprobe_steps_total", "trainprobe_productive_seconds_total",
    "trainprobe_lost_seconds_total", "trainprobe_stalls_total", "trainprobe_checkpoint_bytes_total",
    "trainprobe_worker_exits_total", "trainprobe_step_baseline_seconds", "trainprobe_source_up",
)  # fmt: skip
BIN = Path(sys.executable).parent
Json = dict[str, Any]


@dataclass
class Line:
    """One row of the final table."""

    planted: str
    at: float
    true: str
    found: str
    ok: bool


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        python = torch_python.find(options.python)
    except torch_python.NoTorch as error:
        print(f"trainprobe demo: {error}", file=sys.stderr)
        return 2
    directory = Path(tempfile.mkdtemp(prefix="trainprobe-demo-"))
    try:
        return _demo(directory, python, options.seed)
    except ProgramError as error:
        print(f"\ntrainprobe demo: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _demo(directory: Path, python: str, seed: int) -> int:
    say(
        f"A real PyTorch training runs for about 75 seconds, with stalls planted in it at random times (--seed {seed})."
    )
    say("trainprobe watches it from outside; the training does not know, and keeps a clock of its own: the truth.\n")
    plan = make_plan(seed, _batch(python), directory)
    (directory / "plan.json").write_text(json.dumps(plan))
    with Daemon(directory) as daemon:
        started = programs.cpu_seconds(daemon.process.pid), programs.cpu_seconds(daemon.process.pid, children=True)
        began = time.monotonic()
        say(f"[ready after {seconds_of(daemon.ready_seconds)}] trainprobe daemon: eBPF programs in the kernel")
        with Exporter(directory, daemon.directory / "report.json") as exporter:
            say(f"[ready] trainprobe-exporter: {exporter.url}/metrics")
            say(f"[ready] the live page, for a browser on this machine while the training runs: {exporter.page()}")
            say(f"[ready] the same in a terminal: {BIN}/trainprobe top --directory {daemon.directory}")
            say(
                f"In the end this demo (pid {os.getpid()}) kills one of the loader's workers: "
                "the report must say who did."
            )
            before = quiet.now()
            pid, killed = _train(directory, python, daemon, seed)
            others = quiet.others(before, quiet.now())
            truth = _truth(directory)
            run, rank = _wait_for_end(daemon, pid)
            cost = cost_of(daemon.process.pid, *started, time.monotonic() - began)
            say("\n===== What a user sees: trainprobe report " + "=" * 60 + "\n")
            _show_report(daemon, run["run"])
            say("\n===== Planted and found, in seconds " + "=" * 66 + "\n")
            right = show_table(table(plan, truth, rank, killed))
            say("\n===== What Prometheus sees: " + exporter.url + "/metrics " + "=" * 45 + "\n")
            for line in relevant(exporter.get("/metrics"), run["run"]):
                say(line)
            say("\n===== What you can keep: trainprobe report --format html|perfetto " + "=" * 37 + "\n")
            _keep_reports(daemon, run["run"])
    say(f"\n{cost}\n")
    if right:
        say("Every planted stall was named, its seconds within 5 % or 50 ms of the training's own clock.")
    else:
        say("NOT every planted stall was named with its seconds: see the table.")
    say(f"Your own training, watched the same way: {BIN}/trainprobe run -o report.json -- python train.py")
    say(f"then what to set differently, and what it gains: {BIN}/trainprobe advise report.json (docs/tutorial.md)")
    if others > quiet.DISTURBED:
        say(f"(Other programs used {others:.1f} of this machine's processors meanwhile: that, too, slows a training.)")
    return 0 if right else 1


def cost_of(pid: int, own: float, whole: float, seconds: float) -> str:
    """What the daemon has used, in a sentence; ``own`` and ``whole``, with its children, when it was ready."""
    own_now, whole_now = programs.cpu_seconds(pid), programs.cpu_seconds(pid, children=True)
    children = (whole_now - own_now) - (whole - own)
    return (
        f"What watching cost: {seconds_of(whole_now)} of a processor: {seconds_of(whole)} until the daemon was ready"
        f" (a first start compiles), then in {seconds:.0f} s {seconds_of(own_now - own)} of its own and"
        f" {seconds_of(children)} of its children (symbols of libraries, Python stacks of late steps)."
    )


def make_plan(seed: int, batch: int, directory: Path) -> Json:
    """Three of each: a checkpoint with fsync, a slow batch, a Python function; the kill comes from outside."""
    rng = random.Random(seed)
    scratch = directory / "scratch"
    scratch.mkdir()
    checkpoints, batches, functions = ([start + rng.randrange(60) for start in starts] for starts in (
        (90, 410, 740), (190, 520, 850), (300, 630, 960),
    ))  # fmt: skip
    return {
        "seed": seed, "steps": 100_000, "epoch_steps": 100_000, "width": WIDTH, "batch": batch, "workers": 2,
        "scratch": str(scratch), "kill_after": round(rng.uniform(64, 72), 1),
        "driver": [
            {"id": 0, "cause": "checkpoint", "how": "save_file_fsync", "directory": str(scratch),
             "at": {str(step): rng.randrange(280, 420) * MB for step in checkpoints}},
            {"id": 1, "cause": "cpu_bound", "how": "python",
             "at": {str(step): round(rng.uniform(0.5, 2.0), 2) for step in functions}},
        ],
        "data": [
            {"id": 2, "cause": "data_cpu", "how": "busy",
             "at": {str(step): round(rng.uniform(0.9, 2.2), 2) for step in batches}},
        ],
    }  # fmt: skip


def _batch(python: str) -> int:
    """A batch for which a step takes about 45 ms on this machine."""
    script = str(TRAININGS / "step_time.py")
    done = subprocess.run([python, script, str(WIDTH), "128"], check=False, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise ProgramError(f"{python} cannot train: {done.stderr.strip()}")
    return max(32, min(int(128 * STEP_SECONDS / float(done.stdout)), 2048))


def _train(directory: Path, python: str, daemon: Daemon, seed: int) -> tuple[int, Killed | None]:
    """Runs the training to its end, with a line now and then; its pid, and the worker that was killed."""
    plan = str(directory / "plan.json")
    script = str(TRAININGS / "plain.py")
    command = [python, script, "--plan", plan, "--truth", str(directory / "truth.jsonl")]
    say("\n$ " + " ".join(command))
    with open(directory / "training.log", "wb") as log:
        training = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    killer = Killer(script, plan, json.loads(Path(plan).read_text())["kill_after"], seed)
    killer.start()
    try:
        begin = time.monotonic()
        while training.poll() is None and time.monotonic() - begin < AT_MOST:
            _progress(daemon, training.pid, time.monotonic() - begin)
            _pause(training, 1.0 if sys.stderr.isatty() else 10.0)
        late = training.poll() is None
    finally:
        programs.end(training)
        killer.stop()
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
    if late:
        raise ProgramError(
            f"the training had not ended after {AT_MOST:.0f} s and was stopped: this machine is very slow, or other "
            "programs use its processors (top shows them); run it again when they are done"
        )
    last = [line for line in (directory / "training.log").read_text(errors="replace").splitlines() if line.strip()]
    say(f"the training ended with exit code {training.returncode}; its last words: {last[-1] if last else '-'}")
    return training.pid, killer.killed


def _pause(training: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        training.wait(seconds)
    except subprocess.TimeoutExpired:
        pass


def _progress(daemon: Daemon, pid: int, seconds: float) -> None:
    """The live line: where the run is, by what the daemon publishes."""
    found = daemon.rank_of(pid)
    if found is None:
        text = "the training starts"
    else:
        rank = found[1]
        lost = ", ".join(f"{cause} {seconds_of(value)}" for cause, value in rank["lost"].items() if value >= 0.05)
        text = f"{rank['steps']['count']} steps, lost: {lost or 'nothing'}"
    if sys.stderr.isatty():
        print(f"\r\x1b[K[{seconds:3.0f} s] {text}"[:120], end="", file=sys.stderr, flush=True)
    else:
        print(f"[{seconds:3.0f} s] {text}", file=sys.stderr, flush=True)


def _wait_for_end(daemon: Daemon, pid: int) -> tuple[Json, Json]:
    deadline = time.monotonic() + 10
    while (found := daemon.rank_of(pid)) is None or found[0]["ended"] is None:
        if time.monotonic() > deadline:
            raise ProgramError(f"the daemon does not know of the training's end (pid {pid}); it says: {daemon.said()}")
        time.sleep(0.1)
    return found


def _truth(directory: Path) -> Truth:
    path = directory / "truth.jsonl"
    if not path.exists():
        raise ProgramError(
            "the training left no truth: " + (directory / "training.log").read_text(errors="replace")[-2000:]
        )
    workers = Path(f"{path}.workers")
    return read(path.read_text().splitlines(), workers.read_text().splitlines() if workers.exists() else ())


def _show_report(daemon: Daemon, run: str) -> None:
    subprocess.run(
        programs.trainprobe("report", "--directory", str(daemon.directory), "--state", str(daemon.state), "--run", run),
        check=False, env=programs.environment(),
    )  # fmt: skip


def _keep_reports(daemon: Daemon, run: str) -> None:
    """The page as one file, and the trace: what a person would look at, or mail, afterwards."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for form, name, use in (
        ("html", "report.html", "open it in a browser: the timeline with every stall, its evidence and advice"),
        ("perfetto", "trace.json", "open it in https://ui.perfetto.dev or chrome://tracing"),
    ):
        where = ("--directory", str(daemon.directory), "--state", str(daemon.state))
        kept = ("--run", run, "--format", form, "-o", str(KEPT / name))
        subprocess.run(programs.trainprobe("report", *where, *kept), check=False, env=programs.environment())
        say(f"  {KEPT / name}  {use}")


def table(plan: Json, truth: Truth, rank: Json, killed: Killed | None) -> list[Line]:
    """Every planted stall by the training's clock, and what the report has there."""
    # A slow batch may leave a second, short wait behind: by the training's clock as in the report, part of the first.
    matches = match(planted_stalls(truth, "data_cpu"), rank["stalls"], truth)
    felt = [found for found in matches if found.cause and (found.cause != "data_cpu" or found.planted >= LEAST)]
    start = truth.wall(truth.process)
    lines = [_stall_line(found, start) for found in felt]
    wanted = {fault["cause"] for fault in (*plan["driver"], *plan["data"])}
    never = sorted(wanted - {found.cause for found in felt})
    lines.extend(Line(NAMES[cause], 0.0, "never came to be: the run was too short", "-", False) for cause in never)
    lines.append(_death_line(killed, rank, start))
    return lines


NAMES = {
    "checkpoint": "checkpoint with fsync",
    "data_cpu": "slow batch in a worker",
    "cpu_bound": "Python function on the CPU",
}


def _stall_line(found: Match, start: float) -> Line:
    off = abs(found.error)
    ok = found.named and off <= max(ALLOWED_SHARE * found.planted, ALLOWED_SECONDS)
    told = f"{found.reported:7.3f} s  {' + '.join(dict.fromkeys(found.said)) or 'nothing'}"
    return Line(
        NAMES[found.cause], found.start - start, f"{found.planted:7.3f} s", f"{told:<26} off by {1000 * off:.0f} ms", ok
    )


def _death_line(killed: Killed | None, rank: Json, start: float) -> Line:
    name = "worker killed (SIGKILL)"
    if killed is None:
        return Line(name, 0.0, "never came to be: no worker was there", "-", False)
    exits = [e for e in rank["workers"]["exits"] if e["pid"] == killed.pid]
    verdict = rank["verdict"]
    true = f"pid {killed.pid}"
    if not exits:
        return Line(name, killed.at - start, true, "nothing", False)
    death = exits[0]
    ok = death["signal"] == 9 and death["sender_pid"] == os.getpid() and verdict["cause"] == "worker_death"
    told = f"pid {death['pid']} by signal {death['signal']} from pid {death['sender_pid']}, verdict {verdict['cause']}"
    return Line(name, killed.at - start, true, f"{told}; off by {1000 * abs(death['time'] - killed.at):.0f} ms", ok)


def show_table(lines: Sequence[Line]) -> bool:
    """Prints it; whether every line is right."""
    say(f"  {'at':>7}  {'planted':<27} {'true':<12} found")
    for line in sorted(lines, key=lambda line: line.at):
        say(f"  {line.at:6.1f}s  {line.planted:<27} {line.true:<12} {line.found}  {'ok' if line.ok else 'WRONG'}")
    return all(line.ok for line in lines)


def relevant(metrics: str, run: str) -> list[str]:
    """A dozen or two of the lines: those of the run that say something, and what the exporter reads from."""
    lines = []
    for line in metrics.splitlines():
        name, _, rest = line.partition("{")
        if name.split(" ")[0] not in METRICS or rest.rstrip().endswith(" 0.0"):
            continue
        if f'run="{run}"' in rest or name == "trainprobe_source_up":
            lines.append(line)
    return lines


def say(text: str = "") -> None:
    print(text, flush=True)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument(
        "--python", help="an interpreter with PyTorch (default: TRAINPROBE_TORCH_PYTHON, PYTHON, python3)"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000), help="of what is random")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
