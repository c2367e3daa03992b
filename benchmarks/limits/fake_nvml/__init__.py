"""A libnvidia-ml.so.1 whose GPUs are described by a file."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
from pathlib import Path
from types import TracebackType

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


class Working:
    """GPUs that a training keeps busy: every figure that NVML knows, anew three times a second."""

    TELL_SECONDS = 0.3
    TOTAL = 80 << 30

    def __init__(self, state: Path, count: int) -> None:
        self._state, self._count = state, count
        self._draw = random.Random(count)
        self._over = threading.Event()
        self._pid = 0
        self._teller = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Working:
        self._write()
        self._teller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._teller.join()

    def held_by(self, pid: int) -> None:
        """Whose memory it is from now on."""
        self._pid = pid

    def _tell(self) -> None:
        while not self._over.wait(self.TELL_SECONDS):
            self._write()

    def _write(self) -> None:
        fresh = self._state.with_suffix(".new")
        fresh.write_text("\n".join([f"99 count {self._count}", *map(self._figures, range(self._count))]) + "\n")
        fresh.rename(self._state)

    def _figures(self, index: int) -> str:
        busy = self._draw.randrange(60, 100)
        figures = {
            "memory_total": self.TOTAL, "memory_used": self.TOTAL // 2 + self._draw.randrange(1 << 20),
            "utilization": busy, "samples": busy, "power": 3000 * busy, "temperature": self._draw.randrange(60, 72),
            "clock": self._draw.randrange(1700, 1900), "clock_max": 1980, "pcie": self._draw.randrange(1 << 20),
            "reasons": self._draw.choice((0, 4)), "ecc": 0, "mig": 0, "rows": 0, "tensor": busy // 2,
            "pid": self._pid, "pid_memory": self.TOTAL // 2,
        }  # fmt: skip
        return "\n".join(f"{index} {name} {value}" for name, value in figures.items())
