"""Writes everything in the tree that is made from something else in it: ``make generated``.

First what the specs of causes (``trainprobe.causes``) say: the enumeration, the colours, the index of their pages, the
dashboards' switches. Then the structures of layout.h in Python. At last, by programs of their own that import those,
dashboards, rules and pages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from trainprobe import __version__
from trainprobe.bpf.compile.defines import defines
from trainprobe.causes import groups
from trainprobe.causes.registry import DECLARED
from trainprobe.causes.spec import CauseSpec
from trainprobe.model.cause import Cause, Kind
from trainprobe.text.catalogue import catalogue

ROOT = Path(__file__).parents[1]
BPF = ROOT / "daemon" / "trainprobe" / "bpf"
PAGES = ROOT / "docs" / "causes"
KINDS_FILE = ROOT / "tests" / "contract" / "causes.txt"
CHINESE = ROOT / "docs" / "causes.zh.md"
VERSIONS = {
    "charts/trainprobe/Chart.yaml": r'^((?:v|appV)ersion: "?)[^"\n]+',
    "image/Containerfile": r"^(ARG VERSION=).+",
}
"""Files with the program's version, and what stands before it."""
_REGION = r"((?:#|<!--) Generated \(make generated\): {name}(?: -->)?\n).*?((?:#|<!--) End of what is generated)"
_HEADING = re.compile(r"# `\w+`: (.*)")


def specs() -> list[CauseSpec]:
    """All that are declared: in the order of the enumeration, new ones behind."""
    known = [cause.value for cause in Cause if cause.value in DECLARED]
    return [DECLARED[key] for key in (*known, *sorted(DECLARED.keys() - set(known)))]


def kinds(spec: CauseSpec) -> list[str]:
    return [kind.value for kind in Kind if kind in spec.kinds]


def causes() -> Iterator[str]:
    """The enumeration in model/cause.py."""
    yield "class Cause(StrEnum):"
    for spec in specs():
        yield f'    {spec.key.upper()} = "{spec.key}"'
    yield "\n\n_S, _B, _E, _P, _W = Kind.STALL, Kind.BOTTLENECK, Kind.EVENT, Kind.PHASE, Kind.WARNING"
    yield "KINDS: dict[Cause, frozenset[Kind]] = {"
    for spec in specs():
        names = ", ".join(f"_{kind[0].upper()}" for kind in kinds(spec))
        yield f"    Cause.{spec.key.upper()}: frozenset({{{names}}}),"
    yield "}"


def looks() -> Iterator[str]:
    """Titles and colours in views/palette.py, which the exporter reads too: it knows nothing of rules."""
    yield "CAUSES: dict[Cause, Appearance] = {"
    for spec in specs():
        light, dark = spec.colours
        yield f'    Cause.{spec.key.upper()}: Appearance("{spec.title}", "{light}", "{dark}"),'
    yield "}"


def index() -> Iterator[str]:
    """The sections of docs/causes/index.md, with the pages' own headings."""
    for section in dict.fromkeys(group.section for group in (*groups.STALLS, groups.PHASES)):
        yield f"## {section}\n"
        for spec in specs():
            if spec.group.section == section:
                yield f"- [`{spec.key}`]({spec.key}.md): {_heading(spec.key)}"
        yield ""


def _heading(key: str) -> str:
    page = PAGES / f"{key}.md"
    found = _HEADING.match(page.read_text()) if page.exists() else None
    if found is None:
        raise ValueError(f"docs/causes/{key}.md is missing, or begins with no heading like: # `{key}`: what it is")
    return found[1]


def switches() -> Iterator[str]:
    """The table of switches in docs/grafana.md."""
    yield "| switch | causes |\n|---|---|"
    for group in groups.STALLS:
        mine = (f"`{spec.key}`" for spec in specs() if spec.group is group and Kind.STALL in spec.kinds)
        yield f"| {group.switch} | {', '.join(mine)} |"
    phases = "start-up, compilation, evaluation, idle, attaching, shutdown"
    yield f"| {groups.PHASES.switch} | {phases}: time that is not lost |"


_SCALARS = {
    "char": "c_char", "s16": "c_int16", "s32": "c_int32", "u8": "c_uint8", "u16": "c_uint16", "u32": "c_uint32",
    "u64": "c_uint64",
}  # fmt: skip
_RENAMED = {"call": "CallRecord", "step_file": "StepFileRecord"}  # abi has other things called Call and StepFile


def structures() -> Iterator[str]:
    """bpf/structures.py: the structures of layout.h, with the lengths of their arrays as ``defines`` has them."""
    layout = re.sub(r"/\*.*?\*/", "", (BPF / "src/include/layout.h").read_text(), flags=re.DOTALL)
    lengths = dict(flag[2:].split("=") for flag in defines())
    yield "# SPDX-License-Identifier: Apache-2.0"
    yield '"""Generated (make generated) from src/include/layout.h: its structures, member by member."""\n'
    yield f"from ctypes import Structure, {', '.join(_SCALARS.values())}\n\n# fmt: off"
    found = {}
    for name, body in re.findall(r"^struct (\w+) {(.*?)^};", layout, re.DOTALL | re.MULTILINE):
        found[name] = _RENAMED.get(name, name.title().replace("_", ""))
        yield f"class {found[name]}(Structure):\n    _fields_ = ["
        for declaration in filter(None, map(str.strip, body.split(";"))):
            kind, _, members = declaration.removeprefix("struct ").partition(" ")
            fields = []
            for member in members.split(","):
                label, _, length = member.strip().rstrip("]").partition("[")
                times = f" * {lengths.get(length, length)}" if length else ""
                fields.append(f'("{label}", {_SCALARS.get(kind) or found[kind]}{times}),')
            yield from (f"        {' '.join(fields[at : at + 3])}" for at in range(0, len(fields), 3))
        yield "    ]\n\n"
    yield "STRUCTURES: dict[str, type[Structure]] = {"
    yield from (f'    "{name}": {label},' for name, label in found.items())
    yield "}"


REGIONS: dict[str, Callable[[], Iterator[str]]] = {
    "daemon/trainprobe/model/cause.py": causes,
    "daemon/trainprobe/views/palette.py": looks,
    "docs/causes/index.md": index,
    "docs/grafana.md": switches,
}
PRINTED = {
    "docs/metrics.md": "trainprobe_exporters.catalogue_docs",
    "docs/configuration.md": "trainprobe.config.document",
    "docs/errors.md": "tools.errors",
}
COPIES = {
    "charts/trainprobe/files": ("grafana/rules/alerts.yml", "grafana/rules/recording.yml", "grafana/dashboards/*.json")
}
"""Folders of copies: a chart holds its files, and links are lost on the way through archives and some file systems."""
WRITERS = ("grafana.build", "grafana.rules.build", "tests.replay.cause_pages")


def region(path: str) -> str:
    """The file with its generated region made anew."""
    write = REGIONS[path]
    pattern = re.compile(_REGION.format(name=write.__name__), re.DOTALL)
    text, count = pattern.subn(
        lambda found: f"{found[1]}{chr(10).join(write())}\n{found[2]}", (ROOT / path).read_text()
    )
    if count != 1:
        raise ValueError(f"{path}: {count} regions called {write.__name__}")
    return text


def pinned() -> str:
    """Keys and kinds as the contract test holds them: they may be added here, and are never changed or removed."""
    old = KINDS_FILE.read_text().splitlines()
    known = {line.partition(":")[0] for line in old}
    new = [f"{spec.key}: {' '.join(kinds(spec))}" for spec in specs() if spec.key not in known]
    return "\n".join([*old, *new]) + "\n"


def chinese() -> str:
    """docs/causes.zh.md with a row for each cause that it lacks: its title, and its English page."""
    text = CHINESE.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| [`")]
    titles = catalogue("zh").messages
    new = []
    for spec in specs():
        page = f"causes/{spec.key}.md"
        if not any(row.startswith(f"| [`{spec.key}`]") for row in rows):
            cells = [titles.get(f"cause.{spec.key}", ""), *[f"见[说明（英文）]({page})"] * 2]
            new.append(f"| [`{spec.key}`]({page}) | {' | '.join(cells)} |")
    return text.replace(rows[-1], "\n".join([rows[-1], *new]))


def versioned(path: str) -> str:
    """The file with the version."""
    return re.sub(VERSIONS[path], rf"\g<1>{__version__}", (ROOT / path).read_text(), flags=re.MULTILINE)


def main() -> None:
    for path in REGIONS:
        (ROOT / path).write_text(region(path))
    (BPF / "structures.py").write_text("\n".join(structures()) + "\n")
    KINDS_FILE.write_text(pinned())
    CHINESE.write_text(chinese())
    for path in VERSIONS:
        (ROOT / path).write_text(versioned(path))
    for path, module in PRINTED.items():
        (ROOT / path).write_text(_run(module))
    for module in WRITERS:
        _run(module)
    for copy, original in copies():
        copy.write_bytes(original.read_bytes())


def copies() -> Iterator[tuple[Path, Path]]:
    """(copy, original)"""
    for folder, patterns in COPIES.items():
        for original in (path for pattern in patterns for path in sorted(ROOT.glob(pattern))):
            yield ROOT / folder / original.name, original


def _run(module: str) -> str:
    """What a program of the tree prints; in a process of its own, which imports what was just written."""
    return subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


if __name__ == "__main__":
    main()
