# SPDX-License-Identifier: Apache-2.0
"""The functions that mark what a training does: the beginning of a mangled name, and the program attached there."""

from __future__ import annotations

from trainprobe.model.dataclass import dataclass


@dataclass(frozen=True)
class Mark:
    name: str
    program: str
    prefixes: tuple[bytes, ...]
    required: bool = False  # without it there are no steps
    anywhere: bool = False  # no argument is read, so it may sit behind the first instructions
    at_return: bool = False


IN_CPU = (
    Mark("backward", "on_backward", (b"_ZN5torch8autograd6Engine7executeE",), required=True),
    Mark("graph_task", "on_graph_task", (b"_ZN5torch8autograd6Engine23execute_with_graph_taskE",)),
    Mark(
        "backward_end",
        "on_backward_end",
        (b"_ZN5torch8autograd9GraphTask41mark_as_completed_and_run_post_processingE",),
    ),
    Mark("record", "on_record", (b"_ZN5torch8autograd8profiler25record_function_enter_newE",), required=True),
    Mark(
        "record_end",
        "on_record_end",
        (
            b"_ZN5torch8autograd8profilerL24record_function_exit_newE",
            b"_ZN5torch8autograd8profiler24record_function_exit_newE",
        ),
        anywhere=True,
    ),
)
_INFERENCE = (
    b"_ZZN8pybind1112cpp_function10initializeIZN5torch4impl29py_context_manager_DEPRECATEDIN3c1013InferenceModeEJbEEEv"
    b"RKNS_7module_EPKcEUlRNS3_28DeprecatedRAIIContextManagerIS6_JbEEE"
)
"""pybind11's wrappers of the lambdas that are its __enter__ and its __exit__."""
IN_PYTHON = (
    Mark("set_grad", "on_set_grad", (b"_ZN5torch8autogradL16set_grad_enabledEP7_objectS2_S2_",)),
    Mark("set_grad_single", "on_set_grad_single", (b"_ZN5torch8autogradL16set_grad_enabledEP7_objectS2_\0",)),
    Mark("inference", "on_inference", (_INFERENCE + b"E_vJ",), anywhere=True),
    Mark("inference_end", "on_inference_end", (_INFERENCE + b"RKNS_6object",), anywhere=True),
)

IN_INTERPRETER = (
    Mark("collector", "on_collector", (b"usdt:python:gc__start",)),
    Mark("collector_end", "on_collector_end", (b"usdt:python:gc__done",)),
    Mark("finalize", "on_finalize", (b"=Py_FinalizeEx", b"=_Py_Finalize")),
)
"""CPython's own probes, which Debian, Ubuntu, Fedora and Red Hat build in, and the begin of its finalization. Since
CPython 3.14 ``python`` itself calls ``_Py_Finalize``, which a stripped interpreter has no symbol for."""
RELEASES = (Mark("release", "on_release", (b"=PyEval_SaveThread",)),)
"""Where an extension lets go of the interpreter's lock."""
IN_INTERPRETER_BY_SYMBOL = (
    Mark("collector", "on_collector", (b"gc_collect_main",)),
    Mark("collector_end", "on_collector_end", (b"gc_collect_main",), at_return=True),
)
"""The function around them since CPython 3.7, for interpreters without probes whose symbols were kept (pyenv's)."""
