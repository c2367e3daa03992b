"""A libcudart.so.12 and a libcuda.so.1 whose GPU is on paper, each with a library that calls it as PyTorch's does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.stalls.host import CannotHere

HERE = Path(__file__).parent
LIBRARIES = {"libcudart.so.12": (), "libcuda.so.1": ("-DDRIVER",)}
CALLERS = {"libcudart.so.12": "libcaller.so", "libcuda.so.1": "libdriver_caller.so"}


def built(folder: Path) -> Path:
    """The folder, with the libraries in it. Their symbols have versions, as NVIDIA's do. Raises CannotHere without a
    compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotHere("no C compiler here")
    folder.mkdir(parents=True, exist_ok=True)
    for name, flags in LIBRARIES.items():
        versions = folder / f"{name}.versions"
        versions.write_text(f"{name} {{ global: *; }};\n")
        command = [compiler, "-O2", "-shared", "-fPIC", *flags]
        link = [f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}"]
        subprocess.run([*command, *link, "-o", str(folder / name), str(HERE / "cuda.c")], check=True)
        caller = [*command, "-o", str(folder / CALLERS[name]), str(HERE / "caller.c")]
        subprocess.run([*caller, f"-L{folder}", f"-l:{name}", "-Wl,-rpath,$ORIGIN"], check=True)
    return folder
