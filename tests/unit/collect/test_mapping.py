from __future__ import annotations

import pytest

from tests.unit.collect.fake_proc import LIBTORCH, maps_line
from trainprobe.collect.mapping import Mapping, find_library, runs_models, uses_cuda

FOUND = Mapping(0x7F0000001000, 0x7F0000400000, (0xFD, 1), 4711, LIBTORCH)
OTHERS = "55d0-55e0 r-xp 00000000 fd:01 12 /usr/bin/python3\n7ffd-7ffe r-xp 00000000 00:00 0 [vdso]\n"


def test_the_executable_segment_is_found_among_others() -> None:
    maps = OTHERS + maps_line(perms="r--p") + maps_line() + maps_line(perms="rw-p") + OTHERS
    assert find_library(maps.encode()) == FOUND


def test_a_cut_file_ends_in_its_last_line() -> None:
    assert find_library((OTHERS + maps_line()).rstrip("\n").encode()) == FOUND


@pytest.mark.parametrize(
    "path",
    [
        LIBTORCH,
        "/x/libtorch_cpu-1a2b3c.so",
        "/x/libtorch_cpu.so.2.1",
        "/a b/libtorch_cpu.so",
        "/\udcff/libtorch_cpu.so",
    ],
)
def test_names_of_the_library(path: str) -> None:
    found = find_library(maps_line(path).encode("utf-8", "surrogateescape"))
    assert found is not None
    assert found.path == path


def test_an_unlinked_library_is_still_mapped() -> None:
    assert find_library(maps_line(LIBTORCH + " (deleted)").encode()) == FOUND


@pytest.mark.parametrize(
    "line",
    [
        maps_line(perms="r--p"),
        maps_line("/tmp/libtorch_cpu.so.txt"),
        maps_line("/tmp/libtorch_cpu_extra.so"),
        maps_line("/tmp/xlibtorch_cpu.so"),
        maps_line("/tmp/libtorch_cpu/readme"),
        maps_line("/memfd:libtorch_cpu.so"),
        maps_line("[libtorch_cpu.so]"),
        "libtorch_cpu.so\n",
        "7f-80 r-xp libtorch_cpu.so\n",
        "f" * 40 + "-80 r-xp 0 fd:01 1 /libtorch_cpu.so\n",
    ],
)
def test_what_is_not_the_library(line: str) -> None:
    assert find_library(line.encode()) is None
    assert find_library((line + maps_line()).encode()) == FOUND


def test_hostile_maps_take_linear_time() -> None:
    assert find_library((maps_line("/libtorch_cpu" * 300) * 2000).encode()) is None


@pytest.mark.parametrize(
    ("path", "perms", "uses"),
    [
        ("/x/libcudart.so.12", "r-xp", True),
        ("/x/libcudart-a7b20f20.so.11.0", "r-xp", True),
        ("/usr/lib/libcuda.so.550.54.14", "r-xp", True),
        ("/x/libcudart.so.12", "r--p", False),
        ("/x/libcudadebugger.so.1", "r-xp", False),
        ("/x/libcuda.so.1/other", "r-xp", False),
    ],
)
def test_libraries_of_cuda(path: str, perms: str, uses: bool) -> None:
    assert uses_cuda((OTHERS + maps_line(path, perms=perms) + OTHERS).encode()) == uses


@pytest.mark.parametrize(
    "name",
    [
        "jaxlib/libjax_common.so",
        "jaxlib/xla_extension.so",
        "python/lib_pywrap_tensorflow_common.so",
        "python/_pywrap_tfe.so",
        "python/_pywrap_tensorflow_internal.so",
    ],
)
def test_libraries_that_run_models(name: str) -> None:
    assert runs_models((OTHERS + maps_line(f"/x/{name}", perms="r-xp")).encode())
    assert not runs_models(OTHERS.encode())
