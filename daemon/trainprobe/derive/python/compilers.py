"""Signs that a training compiles: the programs that it starts, and frames of its Python stack."""

from __future__ import annotations

from collections.abc import Sequence

PROGRAMS = frozenset(
    {"gcc", "g++", "cc1", "cc1plus", "c++", "clang", "clang++", "nvcc", "ptxas", "cicc", "ninja", "as", "ld",
     "collect2", "cmake"}
)  # fmt: skip
"""Names of compilers, as the kernel names a process."""
_FILES = frozenset({"convert_frame.py", "symbolic_convert.py", "codecache.py", "async_compile.py"})
"""Of torch._dynamo and torch._inductor: on the stack while they compile, not while compiled code runs."""
_FUNCTIONS = frozenset(
    {
        "compile_fx_inner", "fx_codegen_and_compile", "_compile_fx_inner", "bw_compiler",  # torch._inductor
        "backend_compile", "backend_compile_and_load", "compile_or_get_cached",  # jax._src.compiler
    }
)  # fmt: skip
_SOURCES = (".cpp", ".cc", ".c", ".cu", ".ptx")


def in_compiler(frames: Sequence[str]) -> bool:
    """Whether a stack, frames as "name (file:line)", is inside of a compiler."""
    return any(_name(frame) in _FUNCTIONS or _file(frame) in _FILES for frame in frames)


def folder_of(command: Sequence[str]) -> str:
    """The directory of the source that a compiler's command line names; "" where it names none by an absolute path."""
    sources = (word for word in command if word.startswith("/") and word.endswith(_SOURCES))
    return next(sources, "").rpartition("/")[0]


def _name(frame: str) -> str:
    return frame.partition(" (")[0]


def _file(frame: str) -> str:
    return frame.partition(" (")[2].rpartition(":")[0].rpartition("/")[2]
