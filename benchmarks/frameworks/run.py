"""Runs trainings of public frameworks, each watched by ``trainprobe run``, each judged by its own clock.

Exit code 0: all bars are met; 1: one is missed; 2: wrong arguments or no PyTorch.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.frameworks.judge import Judged, judge
from benchmarks.frameworks.plans import TRAININGS, make
from benchmarks.stalls import quiet, torch_python
from benchmarks.stalls.plan import SCRATCH, Plan, place
from benchmarks.stalls.run import ROOT, alone, command, environment
from benchmarks.stalls.table import wilson
from benchmarks.stalls.truth import read

HERE = Path(__file__).resolve().parent / "trainings"
TIME_LIMIT = 240.0
BAR = 0.95
COLUMNS = ("steps", "top", "seconds", "faults", "foreign", "setting", "ending", "account")
"""Checks of ``judge``, in the order of the table."""
ALL = ("steps", "foreign", "setting", "ending", "account")
"""Checks that have to hold in every run; of the others it is ``BAR``."""

Json = dict[str, Any]


@dataclass
class Outcome:
    """One run. ``error``: why it could not be judged. ``others``: cores that others used meanwhile."""

    plan: Plan
    code: int | None = None
    seconds: float = 0.0
    others: float = 0.0
    judged: Judged | None = None
    error: str = ""


def carry_out(plan: Plan, python: str, keep: Path, nice: int = 0) -> Outcome:
    """One run; its plan, report, recording, truth and output are in ``keep``."""
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir(parents=True)
    outcome = Outcome(plan)
    with tempfile.TemporaryDirectory(prefix="trainprobe-frameworks-") as directory:
        scratch = Path(directory)
        (keep / "plan.json").write_text(json.dumps(place(plan.training, {SCRATCH: directory})))
        job = [*command(), "run", "-o", str(keep / "report.json"), "--record", str(keep / "recording.jsonl"), "--"]
        job += [python, str(HERE / f"{plan.style}.py")]
        job += ["--plan", str(keep / "plan.json"), "--truth", str(keep / "truth.jsonl")]
        begin = quiet.now()
        outcome.code = _at_a_terminal(job, plan, scratch, keep, nice)
        end = quiet.now()
        outcome.seconds, outcome.others = end.at - begin.at, quiet.others(begin, end)
    try:
        outcome.judged = _judged(plan, keep)
    except (OSError, ValueError, KeyError, TypeError) as error:
        outcome.error = f"{type(error).__name__}: {error}"
    return outcome


def again(keep: Path) -> Outcome:
    """A run of an earlier time, judged by what the program now makes of its recording; nothing in ``keep`` changes."""
    name, seed, number = keep.name.rsplit("-", 2)
    plan = json.loads((keep / "plan.json").read_text())
    outcome = Outcome(make(name, int(seed), int(number), plan.get("device", "cpu")))
    with tempfile.TemporaryDirectory(prefix="trainprobe-frameworks-") as directory:
        for truth in keep.glob("truth.jsonl*"):
            shutil.copy(truth, directory)
        report = Path(directory) / "report.json"
        job = [*command(), "replay", str(keep / "recording.jsonl"), "-o", str(report)]
        outcome.code = subprocess.run(job, env=environment(), stdout=subprocess.DEVNULL, check=False).returncode
        try:
            outcome.judged = _judged(outcome.plan, Path(directory))
        except (OSError, ValueError, KeyError, TypeError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
    return outcome


def _judged(plan: Plan, keep: Path) -> Judged:
    workers = keep / "truth.jsonl.workers"
    with open(keep / "truth.jsonl", encoding="utf-8") as lines:
        truth = read(lines, workers.read_text().splitlines() if workers.exists() else ())
    report = json.loads((keep / "report.json").read_text())
    advise = [*command(), "advise", str(keep / "report.json")]
    advice = subprocess.run(advise, env=environment(), capture_output=True, text=True, check=False).stdout
    (keep / "advice.txt").write_text(advice)
    return judge(plan, truth, report, advice)


def _at_a_terminal(job: Sequence[str], plan: Plan, scratch: Path, keep: Path, nice: int) -> int:
    """The job's exit code. It has a terminal of its own, for a Ctrl-C where the plan has one."""
    ours, theirs = pty.openpty()
    with open(keep / "output", "wb") as output:
        process = subprocess.Popen(
            job, stdin=theirs, stdout=theirs, stderr=theirs, cwd=scratch, env=environment(), start_new_session=True,
            preexec_fn=lambda: _session(nice),
        )  # fmt: skip
        os.close(theirs)
        reader = threading.Thread(target=_copied, args=(ours, output))
        reader.start()
        end, deadline = plan.training.get("end", {}).get("how"), time.monotonic() + TIME_LIMIT
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if (scratch / "end").exists() and end in FROM_OUTSIDE:
                    FROM_OUTSIDE[end](ours, process.pid, plan)
                    end = None
                time.sleep(0.02)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            reader.join(5)
            os.close(ours)
    return code


def _session(nice: int) -> None:
    """The terminal is the new session's own, and its Ctrl-C counts, also where a shell's ``&`` has us ignore it; with
    autogroups, nice values count within a session only."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if nice:
        os.nice(nice)
        autogroup = Path("/proc/self/autogroup")
        if autogroup.exists():
            autogroup.write_text(str(nice))


def _copied(descriptor: int, output: Any) -> None:
    try:
        while data := os.read(descriptor, 1 << 16):
            output.write(data)
    except OSError:
        pass  # the last one has closed the terminal


def _interrupt(terminal: int, _: int, __: Plan) -> None:
    os.write(terminal, b"\x03")


def _kill_worker(_: int, job: int, plan: Plan) -> None:
    """A process below the job that runs its parent's command line is a worker. No stranger's is read: it may hang."""
    workers, todo = [], [job]
    while todo:
        parent = todo.pop()
        below = _children(parent)
        if parent != job:  # the program under test has processes of its own
            workers += [pid for pid in below if _command_line(pid) == _command_line(parent)]
        todo += below
    if workers:
        os.kill(random.Random(plan.seed).choice(sorted(workers)), signal.SIGKILL)


def _children(pid: int) -> list[int]:
    return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


FROM_OUTSIDE = {"interrupt": _interrupt, "kill_worker": _kill_worker}


def row_of(outcome: Outcome) -> Json:
    """A line of the results file."""
    plan, judged = outcome.plan, outcome.judged
    row: Json = {
        "key": plan.key, "seed": plan.seed, "planted": plan.how, "code": outcome.code,
        "seconds": round(outcome.seconds, 2), "others": round(outcome.others, 3), "error": outcome.error,
    }  # fmt: skip
    if judged is not None:
        row |= {
            "said": judged.said, "right": judged.right, "faults": judged.faults, "causes": judged.causes,
            "ok": {name: judged.ok(name) for name in COLUMNS}, "checks": [asdict(check) for check in judged.checks],
        }  # fmt: skip
    return row


def rendered(rows: Sequence[Json]) -> str:
    """The table and the bars."""
    head = ("training", "planted", "said", *COLUMNS)
    body = [
        (row["key"], row["planted"], row.get("said", row["error"]),
         *("" if "ok" not in row else "ok" if row["ok"][name] else "WRONG" for name in COLUMNS))
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in (head, *body)]
    return "\n".join([*lines, "", *(f"{name:<24} {text}" for name, _, text in bars(rows))])


def bars(rows: Sequence[Json]) -> list[tuple[str, bool, str]]:
    """(name, whether it is met, right of all with the lower 95 % bound). A run that was not judged misses each."""
    counted = [(name, [bool(row.get("ok", {}).get(name)) for row in rows]) for name in ("top", *ALL)]
    shares = [(name, sum(right), len(right), 1.0 if name in ALL else BAR) for name, right in counted]
    for name, key in (("faults: cause, seconds", "faults"), ("causes: seconds in all", "causes")):
        pairs = [row.get(key, (1, 0)) for row in rows]
        shares.append((name, sum(right for _, right in pairs), sum(total for total, _ in pairs), BAR))
    return [
        (
            name,
            total > 0 and right / total >= least,
            f"{right} of {total}, lower 95 % bound {wilson(right, total)[0]:.3f}",
        )
        for name, right, total, least in shares
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    if options.again:
        rows = [row_of(again(keep)) for keep in sorted(path.resolve() for path in options.again)]
        print("\n".join(map(_line, rows)) + "\n\n" + rendered(rows))
        return 0 if all(met for _, met, _ in bars(rows)) else 1
    try:
        bare = options.python and all(TRAININGS[name].bare for name in options.only)
        python = os.path.abspath(options.python) if bare else torch_python.find(options.python)
    except torch_python.NoTorch as error:
        print(error, file=sys.stderr)
        return 2
    results = Path(options.results).resolve()
    results.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with open(results, "w", encoding="utf-8") as file:
        for number in range(options.runs):
            for name in options.only:
                if lacking := [module for module in TRAININGS[name].modules if not torch_python.has(python, module)]:
                    print(f"{name}: skipped, {python} lacks {', '.join(lacking)}")
                    continue
                plan = make(name, options.seed, number, options.device)
                with alone(Path(options.lock)):
                    keep = results.with_suffix("") / f"{name}-{options.seed}-{number}"
                    outcome = carry_out(plan, python, keep, options.nice)
                rows.append(row_of(outcome))
                file.write(json.dumps(rows[-1]) + "\n")
                file.flush()
                print(_line(rows[-1]), flush=True)
    print("\n" + rendered(rows))
    print(f"\nresults in {results}; reports, recordings and truths beside it")
    return 0 if rows and all(met for _, met, _ in bars(rows)) else 1


def _line(row: Json) -> str:
    what = f"{row['key']:<24} {row['planted']:<32} {row['seconds']:5.1f} s, others {row['others']:.2f} cores"
    if row["error"]:
        return f"{what}  FAILED {row['error']} (exit code {row['code']})"
    wrong = [f"{check['name']}: {check['said']}" for check in row["checks"] if not check["ok"]]
    return f"{what}  {row['said']}" + "".join(f"\n    {one}" for one in wrong)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks", description=__doc__)
    parser.add_argument("--python", help="an interpreter with PyTorch and requirements/frameworks.txt")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (1)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the trainings that can be moved")
    parser.add_argument("--nice", type=int, default=0, help="of each run, below 0 on a host that others use (0)")
    parser.add_argument("--runs", type=int, default=1, help="of each training (1)")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=list(TRAININGS), help="comma-separated; default: all"
    )
    parser.add_argument("--results", default=str(ROOT / "build" / "frameworks" / "results.jsonl"), help="JSON lines")
    parser.add_argument("--again", type=Path, nargs="+", metavar="DIR", help="judge these runs' recordings anew")
    parser.add_argument(
        "--lock", default=os.path.join(tempfile.gettempdir(), "trainprobe-stalls.lock"), help="held during a run"
    )
    options = parser.parse_args(arguments)
    if options.device != "cpu":
        options.only = [name for name in options.only if TRAININGS[name].on_gpu]
    if unknown := [name for name in options.only if name not in TRAININGS]:
        parser.error(f"no such training: {', '.join(unknown)}; there are {', '.join(TRAININGS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
