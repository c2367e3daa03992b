"""What only an NVIDIA GPU shows, in under ten minutes, without network: ``make gpu``, as root.

``python -m benchmarks.gpu [--output DIR] [--python PYTHON] [--rehearse]``: eBPF, NVML beside nvidia-smi, probes on
CUDA, trainings that stall, and the cost of watching. It writes one report as JSON and as text, and recordings. The
failure of a part is reported, and the others go on. ``--rehearse``: stand-ins for NVML and CUDA take the GPU's place.
Exit code 0: all is as it should be; 1: a part failed, or something differs; 3: this machine lacks something.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu import place as places
from benchmarks.gpu import text
from benchmarks.gpu.parts import PARTS, Part, Result
from benchmarks.gpu.place import Place
from benchmarks.programs import ROOT, environment

WHOLE_SECONDS = 570.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    output: Path = options.output.resolve()
    place = Place(output, options.python, options.paper)
    if options.part:
        return _alone(next(part for part in PARTS if part.name == options.part), place)
    missing = places.lacking(place.python, paper=options.rehearse)
    if missing:
        print("trainprobe: this machine lacks", *missing, sep="\n  ", file=sys.stderr)
        return 3
    output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRAINPROBE_CACHE", str(output / "cache"))
    if options.rehearse:
        place = Place(output, place.python, str(output / "paper"))
        places.rehearse(Path(place.paper))
    begun = time.monotonic()
    report: Result = {"version": 1, "facts": places.facts(place), "parts": {}}
    wanted = [part for part in PARTS if not options.only or part.name in options.only]
    for at, part in enumerate(wanted):
        left = WHOLE_SECONDS - (time.monotonic() - begun)
        print(f"trainprobe: {at + 1}/{len(wanted)} {part.what} (at most {min(part.limit, left):.0f} s)", flush=True)
        report["parts"][part.name] = told = _apart(part, place, min(part.limit, left))
        for line in [told["error"]] if told.get("error") else told["wrong"]:
            print(f"    {line}", flush=True)
    report["seconds"] = round(time.monotonic() - begun, 1)
    (output / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    (output / "report.txt").write_text(text.told(report))
    print(text.told(report))
    print(f"trainprobe: kept in {output}: report.json, report.txt, recordings/")
    return 0 if all(not one.get("error") and not one["wrong"] for one in report["parts"].values()) else 1


def _alone(part: Part, place: Place) -> int:
    """In this process."""
    result = part.measure(place)
    (place.output / f"{part.name}.json").write_text(json.dumps(result))
    return 0


def _apart(part: Part, place: Place, limit: float) -> Result:
    """In a process of its own, which is ended with all that it started when its time is over."""
    begun, answer = time.monotonic(), place.output / f"{part.name}.json"
    answer.unlink(missing_ok=True)
    if limit <= 0:
        return {"error": "no time was left", "wrong": [], "seconds": 0.0}
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", part.name, "--output", str(place.output)]
    command += ["--python", place.python, "--paper", place.paper]
    errors = place.output / f"{part.name}.stderr"
    with errors.open("w") as told:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=told, stderr=told,
            start_new_session=True,
        )  # fmt: skip
    error = ""
    try:
        if process.wait(limit) != 0:
            error = (errors.read_text(errors="replace").strip().splitlines() or ["it ended without a word"])[-1]
    except subprocess.TimeoutExpired:
        error = f"it was not done after {limit:.0f} s"
    finally:
        _end_session(process)
    result = {"wrong": []} if error else json.loads(answer.read_text())
    return result | {"error": error, "seconds": round(time.monotonic() - begun, 1)}


def _end_session(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        time.sleep(1.0)
    process.wait()


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu", help="(%(default)s)")
    parser.add_argument("--python", default=places.python_with_torch(), help="imports torch (PYTHON, else python3)")
    parser.add_argument("--rehearse", action="store_true", help="stand-ins for NVML and CUDA take the GPU's place")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], help="these parts alone")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--paper", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
