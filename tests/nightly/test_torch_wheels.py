"""PyTorch's own CUDA wheels: the marks resolve from their files, and a training on one of them is watched for real.

A wheel has 0.7 to 1 GB; each is downloaded, looked at and deleted before the next. The training's environment takes
some 6 GB while its test runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nightly.watch import assert_accounted, said
from trainprobe.bpf.attach import cuda, mark_table, symbols

ROOT = Path(__file__).parents[2]
CALLING = "libc10_cuda.so"
"""Of PyTorch's libraries the one that allocates."""
LIBRARIES = {"libtorch_cpu.so": mark_table.IN_CPU, "libtorch_python.so": mark_table.IN_PYTHON}
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def download(wanted: str, folder: Path) -> Path:
    """The wheel for CPython 3.11."""
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    command = [
        *PIP,
        "-qq",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--implementation=cp",
        "--python-version=3.11",
    ]
    subprocess.run([*command, *platforms, "--dest", str(folder), wanted], check=True)
    (wheel,) = folder.glob("*.whl")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.0f} MB downloaded")
    return wheel


# "===": a CPU build of the same version, with its local label, will not do. The last: the newest that pip may have.
@pytest.fixture(params=["torch===2.1.2", "torch===2.8.0", "torch"])
def libraries(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder with the libraries of one wheel."""
    wheel = download(request.param, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        for name in (*LIBRARIES, CALLING):
            with archive.open(f"torch/lib/{name}") as source, open(tmp_path / name, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    wheel.unlink()
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.timeout(900)
def test_the_marks_resolve_from_the_files_of_a_wheel(libraries: Path) -> None:
    """Those that a step clock cannot do without, and the ends of a fetch and of a backward."""
    found: dict[str, set[str]] = {}
    for name, wanted in LIBRARIES.items():
        prefixes = [prefix.rstrip(b"\0") for mark in wanted for prefix in mark.prefixes]
        table = symbols.find_apart(str(libraries / name), prefixes)
        assert not isinstance(table, symbols.Unreadable), f"{name}: {table.reason}"
        for mark in wanted:
            found[mark.name] = {
                s.name for prefix in mark.prefixes for s in table.get(prefix.rstrip(b"\0").decode(), [])
            }
    print("\n".join(f"{name}: {sorted(names)}" for name, names in found.items()))
    assert {name for name, names in found.items() if not names} <= {"graph_task"}
    # Memory of the GPU is asked for by symbols of the runtime, not by a copy of it inside.
    nm = subprocess.run(
        ["nm", "-D", "--undefined-only", libraries / CALLING], capture_output=True, text=True, check=True
    )
    imported = {line.split()[-1].partition("@")[0] for line in nm.stdout.splitlines()}
    print(sorted(name for name in imported if name.startswith("cuda")))
    assert {"cudaMalloc", "cudaFree", "cudaEventSynchronize"} <= imported


@pytest.mark.parametrize("wanted", ["nvidia-cuda-runtime-cu11==11.7.99", "nvidia-cuda-runtime-cu12==12.8.90"])
def test_the_marks_on_cuda_resolve_from_nvidias_wheels(wanted: str, tmp_path: Path) -> None:
    """Each function once, all that there are: 1 MB to download."""
    wheel = download(wanted, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if cuda.RUNTIME.fullmatch(os.path.basename(one).encode())]
        archive.extract(name, tmp_path)
    prefixes = [prefix for mark in cuda.IN_RUNTIME for prefix in mark.prefixes]
    table = symbols.find_apart(str(tmp_path / name), prefixes)
    assert not isinstance(table, symbols.Unreadable), table.reason
    assert {prefix: len(found) for prefix, found in table.items()} == {prefix.decode(): 1 for prefix in prefixes}


@pytest.fixture
def old_torch(tmp_path: Path) -> Iterator[Path]:
    """A Python with the oldest of these wheels that it can have, CUDA libraries and all."""
    version = "2.1.2" if sys.version_info < (3, 12) else "2.8.0"
    environment = tmp_path / "environment"
    subprocess.run(["/usr/bin/python3", "-m", "venv", str(environment)], check=True)
    print(f"torch {version} with its CUDA libraries: about 3 GB to download, 6 GB on disk, removed afterwards")
    packages = [f"torch==={version}", "numpy<2"]
    subprocess.run(
        [environment / "bin" / "pip", "--disable-pip-version-check", "-qq", "--no-cache-dir", "install", *packages],
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    yield environment / "bin" / "python"
    shutil.rmtree(environment)


@pytest.mark.timeout(1800)
def test_a_training_on_a_cuda_wheel_is_accounted_for(old_torch: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "nightly" / "watch.py"), str(old_torch), "2000", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stderr[-5000:])
    values = said(done.stdout)
    assert_accounted(values)
    assert values["report"]["runs"][0]["ranks"][0]["steps"]["source"] == "autograd"
