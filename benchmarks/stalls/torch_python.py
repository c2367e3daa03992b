"""Which Python has PyTorch: it need not be the one that runs us."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


class NoTorch(Exception):
    """No interpreter with PyTorch was found."""


def find(asked: str | None = None) -> str:
    """``asked``, else TRAINPROBE_TORCH_PYTHON, else PYTHON, else our own, else python3. Raises NoTorch."""
    candidates = [asked] if asked else _candidates()
    for candidate in candidates:
        if has(candidate, "torch"):
            # Trainings run in directories of their own. Not resolved: a link is what makes it a virtual environment.
            return os.path.abspath(candidate) if os.sep in candidate else candidate
    raise NoTorch(
        f"no PyTorch in {', '.join(candidates) or 'any Python'}: name one with --python or TRAINPROBE_TORCH_PYTHON"
    )


def has(python: str, module: str) -> bool:
    """Whether an interpreter can find a module (without importing it)."""
    question = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    try:
        return subprocess.run([python, "-c", question], check=False, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def styles(python: str, wanted: Iterable[str]) -> tuple[str, ...]:
    """The styles that an interpreter can run: Lightning's own only where it is installed."""
    able = has(python, "lightning")
    return tuple(style for style in wanted if style != "lightning_fit" or able)


def tells_collections(python: str) -> bool:
    """Whether an interpreter was built with CPython's own probes: else nobody sees its garbage collector."""
    program = Path(python).resolve()
    libraries = [*program.parent.parent.glob("lib/libpython3*.so*"), *Path("/usr/lib").glob("*/libpython3*.so*")]
    return any(b"gc__start" in path.read_bytes() for path in [program, *libraries] if path.is_file())


def _candidates() -> list[str]:
    named = [
        os.environ.get("TRAINPROBE_TORCH_PYTHON"),
        os.environ.get("PYTHON"),
        sys.executable,
        shutil.which("python3"),
    ]
    return list(dict.fromkeys(candidate for candidate in named if candidate))
