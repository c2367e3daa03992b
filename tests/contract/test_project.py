"""What the project promises about itself: targets, licences, locked versions, names that say something."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tools import generate

ROOT = Path(__file__).parents[2]
TARGETS = (
    "help demo test nightly check generated fmt lint text types imports unit replay kernel training browser gpu "
    "gpukit deb image chart release clean"
)


def tracked(*patterns: str) -> list[Path]:
    """The files of the checkout that match, new ones included, ignored ones not."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    try:
        out = subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [path for name in out.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_make_help_lists_every_target_with_a_line() -> None:
    text = subprocess.run(
        ["make", "-C", str(ROOT), "--silent", "help"], check=True, capture_output=True
    ).stdout.decode()
    listed = {match[1]: match[2] for match in re.finditer(r"make (\w+) +(.*)", text)}
    assert set(listed) == set(TARGETS.split())
    assert all(listed.values())


def test_copies_are_what_they_were_copied_from() -> None:
    stale = [copy for copy, original in generate.copies() if copy.read_bytes() != original.read_bytes()]
    assert stale == [], "make generated"


def test_every_bpf_source_names_its_licence() -> None:
    for path in tracked("daemon/trainprobe/bpf/src/*.c", "daemon/trainprobe/bpf/src/*.h"):
        head = path.read_text()[:200]
        assert re.search(r"SPDX-License-Identifier: \(?GPL-2\.0(-only)? OR BSD-2-Clause", head), path


def test_no_module_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for path in tracked("*.py") if drawers & {part.removesuffix(".py") for part in path.parts[-3:]}] == []


def test_no_two_classes_share_a_name() -> None:
    """Those of ``structures`` are named by the kernel's side, as members of ``abi``."""
    found = Counter(
        name
        for path in tracked("daemon/*.py", "exporters/*.py")
        if path.name != "structures.py"
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
    )
    assert {name: count for name, count in found.items() if count > 1} == {}


def test_whatever_is_depended_on_is_locked_with_its_hash() -> None:
    metadata = (ROOT / "pyproject.toml").read_text()
    for lock, tables in {"run": ("dependencies",), "dev": ("dependencies", "dev", "stacks")}.items():
        text = (ROOT / "requirements" / f"{lock}.lock").read_text()
        locked = {
            match[1].lower() for match in re.finditer(r"^([\w.-]+)==\S+ ?.*\\\n +--hash=sha256:", text, re.MULTILINE)
        }
        for table in tables:
            block = re.search(rf"^{table} = \[(.*?)\]$", metadata, re.MULTILINE | re.DOTALL)
            assert block
            names = {match[1].lower() for match in re.finditer(r'"([\w.-]+)[=<>~]', block[1])}
            assert names
            assert names <= locked


def test_bcc_is_never_taken_from_the_package_index() -> None:
    """The package of that name there is another program; ours comes with the distribution."""
    for path in tracked("requirements/*"):
        assert not re.search(r"^bcc\b", path.read_text(), re.MULTILINE), path
    assert not re.search(r'"bcc[=<>~\[ ]', (ROOT / "pyproject.toml").read_text())
