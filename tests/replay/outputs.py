"""All that a user can read of each recording, as files: ``python -m tests.replay.outputs DIR [RECORDING...]``.

For each recording NAME: ``NAME.json`` (the report), ``NAME.txt``, ``NAME.advise.txt``, ``NAME.advise.json``, and the
two texts in Chinese (``NAME.zh.txt``, ``NAME.advise.zh.txt``). Only the public commands are used and the same
program writes the same bytes, so ``diff -r`` shows what differs between two versions of the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RECORDINGS = Path(__file__).parent / "recordings"
ENDING = ".jsonl.gz"
PLAIN = {"TZ": "UTC", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "dumb"}


def _said(arguments: Sequence[str]) -> str:
    """What the program prints, both streams; an exit code other than 0 is part of it."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "HOME")}
    program = [sys.executable, "-m", "trainprobe.cli", *arguments]
    done = subprocess.run(program, env=kept | PLAIN, capture_output=True, text=True, check=False)
    code = f"exit code {done.returncode}\n" if done.returncode else ""
    return code + done.stdout + done.stderr


def write(recording: Path, directory: Path) -> None:
    """The files of one recording. The report is named without its directory, so that no text holds that."""
    name = recording.name.removesuffix(ENDING)
    report = str(directory / f"{name}.json")
    texts = {
        "txt": ["replay", str(recording), "-o", report],
        "zh.txt": ["report", "--input", report, "--lang", "zh"],
        "advise.txt": ["advise", report],
        "advise.json": ["advise", "--json", report],
        "advise.zh.txt": ["advise", "--lang", "zh", report],
    }
    for suffix, arguments in texts.items():
        text = _said(arguments).replace(f"{directory}{os.sep}", "").replace(str(recording), recording.name)
        (directory / f"{name}.{suffix}").write_text(text)


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    directory = Path(arguments[0]).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    recordings = [Path(one).resolve() for one in arguments[1:]] or sorted(RECORDINGS.glob(f"*{ENDING}"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda recording: write(recording, directory), recordings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
