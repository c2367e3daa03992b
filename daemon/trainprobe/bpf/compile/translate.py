# SPDX-License-Identifier: Apache-2.0
"""The C sources, and BCC, which makes an image of them."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, partial
from typing import Any

from trainprobe.bpf import errors
from trainprobe.bpf.compile import image
from trainprobe.bpf.compile.forked_task import ForkedTask
from trainprobe.bpf.compile.image import Code, Image, MapShape
from trainprobe.bpf.errors import ProbesUnavailable
from trainprobe.bpf.load.kernel_calls import KernelCalls

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = (
    "core", "alarms", "descriptors", "sched", "faults", "files", "failures", "startup", "calls", "marks", "gpu",
    "lives", "disks", "timers",
)  # fmt: skip
MOST_PARTS = 3
"""Compiled side by side: each takes 120 MB, and half of what one more saves is lost by reading everything again."""
_PROGRAM = re.compile(r"^int (on_\w+)\(", re.MULTILINE)
_FUNCTION = re.compile(r"^(?:int|INLINE) [^\n(;]*?(\w+)\([^;]*?\) \{.*?^}", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"\b(\w+)\(")
_COMPILER = re.compile(r"^\S+ \S+ 0+ \S+ \d+ +(/.*/lib(?:bcc|LLVM|clang)[^/]*)$", re.MULTILINE)


def source_text(wanted: Collection[str] | None = None) -> str:
    """All programs as one translation unit, with #line directives so that errors name the right file.

    Where only some are ``wanted`` (None: all are), functions that none of them calls are empty lines: to read and
    rewrite them takes BCC as long as most programs take.
    """
    parts = []
    for name in SOURCES:
        with open(f"{HERE}/src/{name}.bpf.c", encoding="utf-8") as file:
            parts.append(f'#line 1 "{name}.bpf.c"\n{file.read()}')
    text = "\n".join(parts)
    if wanted is None:
        return text
    functions = _functions(text)
    needed, new = set(wanted), set(wanted) | set(_CALL.findall(_FUNCTION.sub("", text)))  # macros call some, too
    while new:
        called = {name for one in new & functions.keys() for name in _CALL.findall(functions[one])}
        needed |= new
        new = called - needed
    return _FUNCTION.sub(lambda found: found[0] if found[1] in needed else "\n" * found[0].count("\n"), text)


def _functions(text: str) -> dict[str, str]:
    functions: dict[str, str] = {}
    for found in _FUNCTION.finditer(text):
        functions[found[1]] = functions.get(found[1], "") + found[0]
    return functions


def programs() -> frozenset[str]:
    return frozenset(_PROGRAM.findall(source_text()))


def key(wanted: Collection[str], flags: Sequence[str]) -> str:
    """Equal for what is compiled from the same sources and flags, for the same kernel."""
    digest = hashlib.sha256()
    kernel = os.uname()
    told = [*flags, kernel.release, kernel.version, kernel.machine, str(os.sysconf("SC_PAGESIZE")), source_text(wanted)]
    for text in (*told, *_headers()):
        digest.update(b"%d:" % len(text) + text.encode())
    return digest.hexdigest()


def _headers() -> Iterator[str]:
    for folder, folders, names in os.walk(f"{HERE}/src"):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".h"):
                with open(f"{folder}/{name}", encoding="utf-8") as file:
                    yield name
                    yield file.read()


class Compiler:
    """BCC, imported when it is first needed: that alone takes 70 MB and 30 ms."""

    def __init__(self) -> None:
        self._bcc: Any = None

    def compiled(self, wanted: Collection[str], flags: Sequence[str]) -> Image:
        """An image of the wanted programs; raises ProbesUnavailable where there is no BCC, else what BCC raises."""
        self._bcc = self._bcc or _bcc()
        ours, *others = dealt(wanted, min(MOST_PARTS, len(os.sched_getaffinity(0))))
        children = [ForkedTask(partial(self._encoded, part, flags)) for part in others]
        images = [self._part(ours, flags)]
        for part, child in zip(others, children):
            made = child.result()
            beside = image.decode(made, "") if made else None
            images.append(beside or self._part(part, flags))
        return image.joined(images)

    def _encoded(self, wanted: Collection[str], flags: Sequence[str]) -> bytes:
        return image.encode(self._part(wanted, flags), "")

    def _part(self, wanted: Collection[str], flags: Sequence[str]) -> Image:
        options = [*flags, f"-I{HERE}/src/include", "-Wno-macro-redefined", "-Wno-unused-function", "-g0"]
        module = self._bcc.BPF(text=source_text(wanted).encode(), cflags=options)
        tables = _tables(self._bcc.lib, module.module)
        calls = KernelCalls()
        return Image(
            license=self._bcc.lib.bpf_module_license(module.module).decode(),
            maps={name: MapShape(*calls.map_shape(descriptor)) for descriptor, name in tables.items()},
            programs={name: Code.of(module.dump_func(name.encode()), tables) for name in sorted(wanted)},
            made_by=_made_by(self._bcc.__file__),
        )


def dealt(wanted: Collection[str], hands: int) -> list[list[str]]:
    """The programs in so many parts that take about equally long to compile."""
    functions = _functions(source_text())

    @cache
    def length(name: str) -> int:  # with all that is inlined: as the instructions, whose number is not known yet
        called = (found for found in _CALL.findall(functions[name]) if found in functions and found != name)
        return len(functions[name]) + sum(map(length, called))

    parts: list[list[str]] = [[] for _ in range(max(1, min(hands, len(wanted))))]
    for name in sorted(wanted, key=lambda name: (-length(name), name)):
        min(parts, key=lambda part: sum(map(length, part))).append(name)
    return parts


def _bcc() -> Any:
    os.environ["BCC_KERNEL_SOURCE"] = f"{HERE}/src/stub"
    try:
        import bcc
    except ImportError as error:
        raise ProbesUnavailable(errors.NO_BCC(error=str(error)), errors.INSTALL_BCC(command=errors.APT_BCC)) from error
    if not hasattr(bcc, "BPF"):
        raise ProbesUnavailable(errors.OTHER_BCC(), errors.REPLACE_BCC(command=errors.APT_BCC))
    return bcc


def _tables(library: Any, module: int) -> dict[int, str]:
    """Descriptor -> name of every map of a module; BCC's Python finds them by name only."""
    count, name, descriptor = library.bpf_num_tables, library.bpf_table_name, library.bpf_table_fd_id
    count.argtypes, count.restype = [ctypes.c_void_p], ctypes.c_size_t
    name.argtypes, name.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_char_p
    descriptor.argtypes, descriptor.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_int
    return {descriptor(module, place): name(module, place).decode() for place in range(count(module))}


def _made_by(module: str) -> tuple[tuple[str, int, int], ...]:
    """The files of the compiler: BCC's Python, and the libraries that are mapped now."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        libraries = set(_COMPILER.findall(file.read()))
    return tuple(_fingerprint(path) for path in (module, *sorted(libraries)))


def _fingerprint(path: str) -> tuple[str, int, int]:
    found = os.stat(path)
    return path, found.st_size, found.st_mtime_ns


def same_compiler(kept: Image) -> bool:
    """Whether the compiler that would be used now is the one that made this image."""
    found = importlib.util.find_spec("bcc")
    if found is None or not kept.made_by or found.origin != kept.made_by[0][0]:
        return False
    try:
        return all(_fingerprint(path) == (path, size, changed) for path, size, changed in kept.made_by)
    except OSError:
        return False
