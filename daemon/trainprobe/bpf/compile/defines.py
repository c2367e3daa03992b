# SPDX-License-Identifier: Apache-2.0
"""Every number that the C sources and Python must agree on, as flags of the compiler."""

from __future__ import annotations

import struct
from ctypes import sizeof
from enum import IntEnum

from trainprobe.bpf import abi
from trainprobe.bpf.compile import image
from trainprobe.derive.python.frameworks import LOOPS
from trainprobe.model import cells

_SEED, _PRIME, _WORDS = 0xCBF29CE484222325, 0x100000001B3, 8

_ENUMS: tuple[tuple[str, type[IntEnum]], ...] = (
    ("MESSAGE_", abi.RingMessage),
    ("REGION_", cells.Region),
    ("LEAF_", cells.Leaf),
    ("ROW_", cells.RowKind),
    ("RUN_", cells.ThreadState),
    ("LEVEL_", cells.Level),
    ("FILE_", abi.KernelFileKind),
    ("PROCESS_", abi.ProcessKind),
    ("WHY_", abi.Why),
    ("CALL_", abi.Call),
    ("LOST_", abi.Lost),
    ("SITE_", abi.SiteState),
    ("GPU_", abi.GpuCall),
    ("BEAT_", abi.BeatKind),
    ("START_", abi.StartKind),
)
_NUMBERS = (
    "NAME_SIZE", "PATH_SIZE", "START_PATH_SIZE", "PART_SIZE", "PARTS", "QUIET", "POOLS", "LEDGERS", "LEDGERS_BY_ID",
    "DRIVERS", "CALL_NUMBERS", "CALL_GPU_ALLOCATE", "FORM_TRUNCATE", "FORM_ALLOCATE", "BEAT_INTERVALS", "ALARMS",
    "HELD_STEPS", "HELD_NS", "UNTOLD", "STARTS", "START_SPANS", "START_FILES", "STOOD_STILL_NS",
)  # fmt: skip


def defines() -> list[str]:
    """Compiler flags that carry every number both sides must agree on."""
    flags: dict[str, int | str] = {f"SIZE_{name.upper()}": sizeof(shape) for name, shape in abi.STRUCTURES.items()}
    for prefix, numbers in _ENUMS:
        flags.update({f"{prefix}{member.name}": int(member) for member in numbers})
    flags.update((f"VALUE_{name.upper()}", place) for place, name in enumerate(image.VALUES))
    flags.update(CELLS=cells.CELLS, LEAVES=cells.LEAVES, STEP_FILES=cells.STEP_FILES)
    flags.update((name, getattr(abi, name)) for name in _NUMBERS)
    flags.update(OPERATIONS=len(abi.OPERATIONS), REQUEST_BUCKETS=len(cells.BLOCK_IO_BUCKETS) + 1)
    bounds = ",".join(f"{round(bound * 1e9)}ull" for bound in cells.BLOCK_IO_BUCKETS)
    flags.update(LOOP_SEED=f"{_SEED}ull", LOOP_PRIME=f"{_PRIME}ull", LOOP_WORDS=_WORDS)
    flags.update(LOOP_FILES=_loops(), REQUEST_BOUNDS=bounds)
    return [f"-D{name}={value}" for name, value in flags.items()]


def _loops() -> str:
    """The files of frameworks' loops, compiled or not, as hashes of their paths, each with the place of its owner."""
    return "".join(
        f"LOOP({hash_of(f'{framework}/{folder}{slash}{cached}{name}'.removesuffix('.py'))}ull,{place})"
        for place, (framework, paths) in enumerate(LOOPS.items())
        for folder, slash, name in (path.rpartition("/") for path in paths)
        for cached in ("", "__pycache__/")
    )


def hash_of(path: str) -> int:
    """Of a path below site-packages, without its suffix: FNV-1a by words of eight bytes, the last ones filled with
    zeros. Raises struct.error: it is longer than they are."""
    words = struct.unpack(f"<{_WORDS}Q", path.encode().ljust(8 * _WORDS, b"\0"))
    found = _SEED
    for word in words:
        found = (found ^ word) * _PRIME % 2**64
    return found
