"""Where the kit runs: what this machine lacks, and the stand-ins that take a GPU's place in a rehearsal."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.limits import fake_cuda, fake_nvml
from benchmarks.programs import environment

TRAINING = Path(__file__).parent / "trainings" / "gpu_training.py"
SMI = Path(__file__).with_name("paper_smi.py")
ASK_TORCH = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"


@dataclass(frozen=True)
class Place:
    """``python`` imports torch. ``paper``: the folder of the stand-ins, empty on hardware; then all is shorter."""

    output: Path
    python: str
    paper: str = ""

    @property
    def libraries(self) -> str:
        """The folder of the stand-in of CUDA."""
        return f"{self.paper}/cuda" if self.paper else ""


def lacking(python: str, *, paper: bool) -> list[str]:
    """What is missing, each with what would mend it; empty: all is there."""
    found = list(_lacking_for_bpf())
    if not paper:
        found += _lacking_gpu()
    return [*found, *_lacking_torch(python, cuda=not paper)]


def _lacking_for_bpf() -> Iterator[str]:
    if os.geteuid() != 0:
        yield "root: eBPF programs are loaded with its rights"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        yield "BTF: this kernel has no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)"
    if importlib.util.find_spec("bcc") is None:
        yield "BCC's Python: unpack a kit (make gpukit), or apt-get install python3-bpfcc"


def _lacking_gpu() -> Iterator[str]:
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        yield "a GPU: no /dev/nvidia0"
    try:
        ctypes.CDLL(fake_nvml.NAME)
    except OSError:
        yield f"NVML: {fake_nvml.NAME} cannot be loaded; it comes with NVIDIA's driver"


def _lacking_torch(python: str, *, cuda: bool) -> Iterator[str]:
    if not python:
        yield "a Python with PyTorch: no python3 on PATH; name one: make gpu PYTHON=/path/to/python"
        return
    try:
        done = subprocess.run(
            [python, "-c", ASK_TORCH], capture_output=True, text=True, cwd="/", check=False, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"a Python with PyTorch: {error}; name one: make gpu PYTHON=/path/to/python"
        return
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it does not start"])[-1]
        yield f"a Python with PyTorch: {python}: {said}; name one: make gpu PYTHON=/path/to/python"
    elif cuda and not done.stdout.endswith("True\n"):
        yield f"CUDA in PyTorch: {python} has torch {done.stdout.strip()} (version, CUDA, available)"


def python_with_torch() -> str:
    """PYTHON, else python3 on PATH; empty: neither."""
    return os.environ.get("PYTHON") or shutil.which("python3") or ""


def rehearse(folder: Path) -> None:
    """From here on this process and its children find stand-ins for NVML, CUDA and nvidia-smi. Raises CannotHere."""
    folder.mkdir(parents=True, exist_ok=True)
    fake_nvml.built(folder / "nvml")
    fake_cuda.built(folder / "cuda")
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "nvidia-smi").write_text(f'#!/bin/sh\nexec {sys.executable} {SMI} "$@"\n')
    (programs / "nvidia-smi").chmod(0o755)
    (folder / "gpus").write_text("99 count 1\n")
    os.environ.update(
        LD_LIBRARY_PATH=str(folder / "nvml"), FAKE_NVML=str(folder / "gpus"), PATH=f"{programs}:{os.environ['PATH']}"
    )


def facts(place: Place) -> dict[str, str]:
    """Names and versions of what the figures were taken on."""
    asked = {
        "gpus": ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
        "torch": [place.python, "-c", ASK_TORCH],
        "python": [place.python, "--version"],
        "libc": ["ldd", "--version"],
    }
    found = {"kernel": os.uname().release, "processors": str(os.cpu_count()), "mode": "paper" if place.paper else ""}
    for name, command in asked.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment())
            found[name] = (done.stdout.strip().splitlines() or [""])[0]
        except (OSError, subprocess.TimeoutExpired) as error:
            found[name] = f"not told: {error}"
    return found
