"""Finding PyTorch's library, and CUDA's, in /proc/PID/maps (pure)."""

from __future__ import annotations

import re

from trainprobe.model.dataclass import dataclass
from trainprobe.model.vocabulary import MODEL_LIBRARIES

_LIBRARY = re.compile(rb"libtorch_cpu(-[0-9A-Za-z]+)?\.so[.0-9]*")
_LINE = re.compile(
    rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-][w-])([x-])[ps] [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) ([0-9]+) +(/.*)"
)
_CUDA = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ r-xp .*/lib(cuda|cudart[-.\w]*)\.so[.\d]*$", re.MULTILINE)
_DELETED = b" (deleted)"


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapped file: where in the process, and which inode (device and number as maps shows them)."""

    start: int
    end: int
    dev: tuple[int, int]  # major, minor
    ino: int
    path: str


def find_library(maps: bytes) -> Mapping | None:
    """The first executable mapping of a file called libtorch_cpu.so (or libtorch_cpu-<hash>.so, as repaired wheels do).

    The readable segment that the loader maps first does not count: a program may only be looking at the file.
    """
    at = maps.find(b"libtorch_cpu")
    while at >= 0:
        begin, end = maps.rfind(b"\n", 0, at) + 1, maps.find(b"\n", at)
        line = maps[begin:] if end < 0 else maps[begin:end]
        if (found := _mapping(line)) is not None:
            return found
        at = maps.find(b"libtorch_cpu", begin + len(line))
    return None


def uses_cuda(maps: bytes) -> bool:
    """Whether CUDA's runtime or its driver's library is mapped, to be executed."""
    return b"/libcuda" in maps and _CUDA.search(maps) is not None


def runs_models(maps: bytes) -> bool:
    """Whether a library is mapped that runs the models of JAX or TensorFlow."""
    return MODEL_LIBRARIES.search(maps) is not None


def _mapping(line: bytes) -> Mapping | None:
    match = _LINE.fullmatch(line)
    if match is None or match[4] != b"x":
        return None
    path = match[8].removesuffix(_DELETED)
    if path.startswith(b"/memfd:") or not _LIBRARY.fullmatch(path.rpartition(b"/")[2]):
        return None
    return Mapping(
        int(match[1], 16),
        int(match[2], 16),
        (int(match[5], 16), int(match[6], 16)),
        int(match[7]),
        path.decode("utf-8", "surrogateescape"),
    )
