"""A libtorch_cpu.so with the functions that mark steps, and threads that call them, as many as anybody asks for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.stalls.host import CannotHere

NAME = "libtorch_cpu.so"


def built(folder: Path) -> Path:
    """The library, in the folder. Raises CannotHere without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotHere("no C compiler here")
    made = folder / NAME
    source = Path(__file__).with_name("torch.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-pthread", "-o", str(made), str(source)], check=True)
    return made
