"""What watching adds to single calls, in instructions: the real daemon on stock kernels whose clock counts them.

``python -m benchmarks.instructions [--kernel 6.1|6.12] [--tree CHECKOUT] [--write] [--output FILE]``: for each kernel a
guest under ``qemu -icount shift=0``, three to six minutes. A program counts its own calls: bare, beside a daemon that
has watched nothing for a minute, beside a watched training, and as a watched training itself. Two guests agree to an
instruction (``limits.NOISE`` names the exceptions), whatever else the machine does. ``--tree``: of another version;
``--write``: the tables, into docs/cost.md. Exit code 0: within the limits, 1: not, 2: not measured.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.instructions import limits
from benchmarks.instructions.limits import BARE, EXACT, KERNELS, KINDS, LIMITS, NOISE, WAYS
from benchmarks.limits import fake_torch
from benchmarks.stalls.host import CannotHere
from tests.nightly import machine

HERE = Path(__file__).parent
PAGE = machine.ROOT / "docs" / "cost.md"
GUEST_SECONDS = 1500
FIGURE = re.compile(r"^figure\|(\w+)\|([^|\n]+)\|([\d.]+)$", re.MULTILINE)
Figures = dict[str, dict[str, float]]
"""Instructions of a call, by way and kind."""


class NotMeasuredError(Exception):
    """The guest did not come to its end; the text holds what it printed last."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _arguments(arguments)
    try:
        found = {kernel: measure(kernel, options.tree) for kernel in options.kernel or KERNELS}
    except (CannotHere, LookupError, NotMeasuredError, subprocess.CalledProcessError) as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 2
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n")
    if options.write:
        write(found)
    print(table(found))
    over = [line for kernel, figures in found.items() for line in exceeded(kernel, figures)]
    print("\n".join(over) if over else "all within the limits")
    return 1 if over else 0


def measure(kernel: str, tree: Path = machine.ROOT) -> Figures:
    """Raises CannotHere, LookupError or NotMeasuredError."""
    command = ["/usr/bin/env", "PYTHONPATH=.", ".venv/bin/python", str(HERE / "guest.py"), *_built(), str(tree)]
    done = machine.run(machine.stock_kernel(KERNELS[kernel]), shlex.join(command), timeout=GUEST_SECONDS, counted=True)
    found: Figures = {}
    for way, kind, value in FIGURE.findall(done.output):
        found.setdefault(way, {})[kind] = float(value)
    if done.code != 0 or any(kind not in found.get(way, {}) for way in (BARE, *WAYS) for kind in KINDS):
        raise NotMeasuredError(f"the guest ended with {done.code} after {done.seconds:.0f} s:\n{done.output[-4000:]}")
    return found


def exceeded(kernel: str, figures: Figures) -> Iterator[str]:
    """What is over its limit."""
    for way, by_kind in LIMITS[kernel].items():
        for kind, limit in by_kind.items():
            more, room = figures[way][kind] - figures[BARE][kind], EXACT + NOISE.get(kind, 0.0) * figures[BARE][kind]
            if more > limit + room:
                yield f"{kernel}: {kind} {WAYS[way]}: +{more:.0f}, over the limit of +{limit:.0f}"


def table(found: dict[str, Figures]) -> str:
    """Markdown; what each way adds to the bare call."""
    lines = []
    for kernel, figures in found.items():
        lines += [f"| Linux {kernel} | bare | {' | '.join(WAYS.values())} |", "|---|---|---|---|---|"]
        for kind in KINDS:
            more = (f"{figures[way][kind] - figures[BARE][kind]:+,.0f}".replace(",", " ") for way in WAYS)
            bare = f"{figures[BARE][kind]:,.0f}".replace(",", " ")
            lines.append(f"| {kind} | {bare} | {' | '.join(more)} |")
        lines.append("")
    return "\n".join(lines)


def write(found: dict[str, Figures]) -> None:
    """Between the marks of the page."""
    text, begin, end = PAGE.read_text(), "<!-- instructions -->\n", "<!-- /instructions -->"
    head, _, rest = text.partition(begin)
    PAGE.write_text(f"{head}{begin}{table(found)}{end}{rest.partition(end)[2]}")


def _built() -> tuple[str, str, str]:
    """The program, the library and a static program, where the guest finds them."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or shutil.which("qemu-system-x86_64") is None:
        raise CannotHere("no C compiler or no qemu-system-x86_64; see tools/need-packages")
    folder = machine.ROOT / "build" / "instructions"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "probe"
    subprocess.run([compiler, "-O2", "-pthread", "-o", str(program), str(HERE / "probe.c"), "-ldl"], check=True)
    return str(program), str(fake_torch.built(folder)), str(machine.unpacked("busybox-static") / "bin" / "busybox")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions")
    parser.add_argument("--kernel", action="append", choices=sorted(limits.KERNELS), help="all where none is named")
    parser.add_argument("--tree", type=Path, default=machine.ROOT, help="the checkout whose daemon it is")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/cost.md")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the figures as JSON")
    parser.add_argument("--python", help="not needed: no torch runs here")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
