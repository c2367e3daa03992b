"""Signs that a training compiles: the programs that it starts, and frames of its Python stack."""

from __future__ import annotations

from collections.abc import Sequence

from trainprobe.derive.python.frameworks import library
from trainprobe.derive.python.stacks import function_name

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
        "benchmark_all_configs", "autotune_to_one_config",  # … which tunes the kernels of a new shape
        "backend_compile", "backend_compile_and_load", "compile_or_get_cached",  # jax._src.compiler
        "trace_to_jaxpr_dynamic", "lower_jaxpr_to_module",  # jax._src, before it
        "func_graph_from_py_func",  # tensorflow: tf.function traces again
    }
)  # fmt: skip
_TRITON = frozenset({"autotuner.py", "compiler.py", "testing.py"})
"""Of triton: while it compiles, or tunes a kernel. Its jit.py is on the stack at each launch."""
_OTHERS = frozenset({"jax", "tensorflow", "triton"})
_SOURCES = (".cpp", ".cc", ".c", ".cu", ".ptx")


def in_compiler(frames: Sequence[str]) -> bool:
    """Whether a stack, frames as "name (file:line)", is inside of a compiler."""
    return any(map(_compiles, frames))


def is_torch(frames: Sequence[str]) -> bool:
    """Whether it is torch's compiler that such a stack is inside of: that calls Triton's."""
    return library(next(filter(_compiles, frames)))[0] not in _OTHERS


def _compiles(frame: str) -> bool:
    package, file = library(frame)
    return function_name(frame) in _FUNCTIONS or file in _FILES or (package == "triton" and file in _TRITON)


def folder_of(command: Sequence[str]) -> str:
    """The directory of the source that a compiler's command line names; "" where it names none by an absolute path."""
    sources = (word for word in command if word.startswith("/") and word.endswith(_SOURCES))
    return next(sources, "").rpartition("/")[0]
