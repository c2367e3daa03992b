"""A libnvidia-ml.so.1 whose GPUs are described by a file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.stalls.host import CannotHere

SOURCE = Path(__file__).parent / "nvml.c"
NAME = "libnvidia-ml.so.1"


def built(folder: Path) -> Path:
    """The folder, with the library in it. Raises CannotHere without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotHere("no C compiler here")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-o", str(folder / NAME), str(SOURCE)], check=True
    )
    return folder
