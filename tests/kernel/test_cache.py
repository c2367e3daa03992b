# SPDX-License-Identifier: Apache-2.0
"""Programs that are kept from one start to the next: the same ones, and never a wrong one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trainprobe.bpf.compile import child, image, kernel_types, translate
from trainprobe.bpf.compile.cache import Cache
from trainprobe.bpf.compile.image import Image
from trainprobe.bpf.load.install import MARKS

CHECKOUT = Path(__file__).parents[2]
TAGS = """
import ctypes, struct
from trainprobe.bpf.load.kernel_calls import KernelCalls
from trainprobe.bpf.probes import Probes
from trainprobe.collect.procfs import Proc
probes = Probes.start(Proc(), auto=False)
probes.await_marks()
calls = KernelCalls()
for name, program in sorted(probes._loaded.programs.items()):
    info = ctypes.create_string_buffer(256)
    told = struct.pack("=IIQ", program, len(info), ctypes.addressof(info))
    calls._call_bpf(calls._GET_INFO_BY_FD, ctypes.create_string_buffer(told, 128))
    print(name, info.raw[8:16].hex(), struct.unpack_from("=I", info.raw, 20)[0])
for name, table in sorted(probes._loaded.maps.items()):
    print(name, *calls.map_shape(table))
probes.close()
"""


def started(directory: Path | str) -> tuple[str, str]:
    """Tag and size of every program that the kernel has loaded, and the shapes of maps; and what was said."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "daemon"), "TRAINPROBE_CACHE": str(directory)}
    command = [sys.executable, "-c", TAGS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache as the first start left it, and what it loaded."""
    directory = tmp_path_factory.mktemp("kept") / "trainprobe"
    told, said = started(directory)
    assert not said
    assert len(told.splitlines()) > 50
    return directory, told


@pytest.fixture
def kept(compiled: tuple[Path, str], tmp_path: Path) -> tuple[Path, str]:
    """A copy to do harm to."""
    directory, told = compiled
    copy = tmp_path / "trainprobe"
    copy.mkdir(0o700)
    for file in directory.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
        (copy / file.name).chmod(0o600)
    return copy, told


def forge(file: Path, wanted: frozenset[str], forged: Callable[[Image], Image]) -> None:
    """Another image for the same key, with a good sum: as if root had written it."""
    tracefs = kernel_types.find_tracefs()
    assert tracefs
    key = translate.key(wanted, child.compiler_flags(tracefs, Cache(""), auto=False))
    found = image.decode(file.read_bytes(), key)
    assert found is not None
    file.write_bytes(image.encode(forged(found), key))


def changed(files: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in files.iterdir()}


def test_the_second_start_loads_the_same_programs_and_compiles_none(kept: tuple[Path, str]) -> None:
    directory, told = kept
    before = changed(directory)
    assert set(before) == {"events", "kernel", "marks"}
    assert started(directory) == (told, "")
    assert changed(directory) == before


@pytest.mark.parametrize("name", ["events", "kernel", "marks"])
def test_a_damaged_file_is_told_and_mended(kept: tuple[Path, str], name: str) -> None:
    directory, told = kept
    with open(directory / name, "r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(b"\xff")
    found, said = started(directory)
    assert found == told
    told_line = f"{directory}/{name} is ignored and made anew: it is damaged"
    assert said == f"trainprobe: {told_line}\n"
    assert started(directory) == (told, "")


def without_an_end(found: Image) -> Image:
    """Every program but for its last instruction."""
    return replace(
        found,
        programs={name: replace(code, instructions=code.instructions[:-8]) for name, code in found.programs.items()},
    )


def without_a_program(found: Image) -> Image:
    return replace(found, programs=dict(list(found.programs.items())[1:]))


def with_an_impossible_map(found: Image) -> Image:
    return replace(found, maps={name: shape._replace(kind=9999) for name, shape in found.maps.items()})


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("events", without_an_end),
        ("marks", without_an_end),
        ("marks", without_a_program),
        ("events", with_an_impossible_map),
    ],
)
def test_what_the_kernel_refuses_is_compiled_anew(
    kept: tuple[Path, str], name: str, forged: Callable[[Image], Image]
) -> None:
    directory, told = kept
    wanted = MARKS if name == "marks" else translate.programs() - MARKS
    forge(directory / name, wanted, forged)
    found, said = started(directory)
    assert found == told
    assert said.startswith(f"trainprobe: {directory}/{name} is ignored and made anew: ")
    assert len(said.splitlines()) == 1
    assert started(directory) == (told, "")


def test_a_file_of_another_compiler_is_replaced(kept: tuple[Path, str]) -> None:
    directory, told = kept
    before = changed(directory)
    path = translate.HERE + "/compile.py"  # any file that did not make it
    forge(directory / "marks", MARKS, lambda found: replace(found, made_by=((path, 1, 1),)))
    assert started(directory) == (told, "")
    after = changed(directory)
    assert after["events"] == before["events"]
    assert after["marks"] != before["marks"]


def test_switched_off_it_compiles_the_same(compiled: tuple[Path, str]) -> None:
    assert started("off") == (compiled[1], "")
    assert not Path("off").exists()
