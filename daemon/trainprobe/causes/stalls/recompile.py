"""A compiler ran although the training had found its ordinary step: torch.compile, Triton, XLA, C++ extensions."""

from __future__ import annotations

from trainprobe.causes import groups
from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.base import Claim, Items, Window, at_most, seconds, take_items
from trainprobe.causes.spec import CauseSpec, OrderedRule
from trainprobe.causes.waiting import OTHER_WORK, evaluates
from trainprobe.derive.python.compilers import in_compiler, is_torch
from trainprobe.derive.python.evaluators import is_named
from trainprobe.derive.workers import in_rows
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.cells import Region
from trainprobe.model.message import Message, template
from trainprobe.model.moment import NS
from trainprobe.model.report import Evidence

SUMMARY = template("recompile.summary", "compiled again for {seconds:seconds}")
WAITS = template("recompile.waits", "training thread waits for a compiler")
COMPILES = template("recompile.compiles", "training thread compiles in {where}")
RAN = template("recompile.ran", "compiler processes ran")
COUNT = template("recompile.count", "compiler processes")
STACKS = template("recompile.stacks", "Python stacks of the training thread that show a compiler")
STACKS_OF_OTHERS = template(
    "recompile.stacks_of_others", "Python stacks of the training thread that show JAX, TensorFlow or Triton compile"
)


SEVERAL, APART_NS = 3, NS
"""So many compilers with no more between one and the next are one compilation: Triton's passes run in torch's own
workers, which then start a short ptxas for each kernel."""


def claim(window: Window, left: Items) -> Claim | None:
    """The excess without what no compiler does, where compilers ran for a third of it, or came one after the other for
    half of it, or most stacks of the driver show one."""
    taken = {
        item: ns for item, ns in take_items(left).items() if item[0] not in OTHER_WORK and item[1] is not Region.FETCH
    }
    total = sum(taken.values())
    stacks = [stack.frames for stack in window.late.stacks if stack.frames]
    compiling = [frames for frames in stacks if in_compiler(frames)]
    by_process = 0 < window.compile_ns >= total / 3 or _in_a_row_ns(window) >= total / 2 > 0
    if not by_process and 2 * len(compiling) <= len(stacks):
        return None
    evaluating = [one for one in stacks if one not in compiling and is_named(one, window.loop)]
    if evaluating or (by_process and evaluates(window)):  # an evaluation goes on once its own graph is compiled
        part = len(compiling) / (len(compiling) + len(evaluating)) if compiling else 0.0
        taken = at_most(taken, max(part * total, _in_a_row_ns(window), window.compile_ns))
    evidence = []
    if window.compile_ns > 0:
        ran, cache = window.compilers, next((one.output for one in window.compilers if one.output), None)
        evidence.append(Evidence.of(RAN(), seconds(window.compile_ns), "s", window.driver_pid))
        evidence.append(Evidence.of(COUNT(), len(ran), "", window.driver_pid, cache))
    if compiling:
        shown = STACKS if all(map(is_torch, compiling)) else STACKS_OF_OTHERS
        evidence.append(Evidence.of(shown(), len(compiling), "", window.driver_pid))
    chain = WAITS() if by_process else COMPILES(where=compiling[-1][-1])
    return Claim(Cause.RECOMPILE, taken, SUMMARY(seconds=seconds(sum(taken.values()))), [chain], evidence)


def _in_a_row_ns(window: Window) -> int:
    """The longest time in which compilers follow each other."""
    ran = window.compilers
    return max(
        (
            end - begin
            for begin, end in in_rows(ran, window.start_ns, window.end_ns, APART_NS)
            if sum(one.start_ns < end and one.end_ns > begin for one in ran) >= SEVERAL
        ),
        default=0,
    )


SHAPES = template(
    "recompile.advice.shapes",
    "TORCH_LOGS=recompiles names what changed{every}: pad batches to a few shapes, drop the last incomplete one "
    "(drop_last=True), or torch.compile(…, dynamic=True) and torch._dynamo.mark_dynamic",
)
FEWER_SHAPES = template(
    "recompile.advice.fewer_shapes",
    "each new shape is compiled, or tuned{every}: pad batches to a few shapes, drop the last incomplete one",
)
EVERY = template("recompile.advice.every", " (it came {every:every step|every # steps})")
CACHE = template(
    "recompile.advice.cache",
    "keep TORCHINDUCTOR_CACHE_DIR on a local disk that outlives the run: a later run finds what this one compiled",
)


def _advice(f: AdviceInput) -> list[Message]:
    every = EVERY(every=f.every) if f.every else None
    if f.saw(STACKS_OF_OTHERS):
        return [FEWER_SHAPES(every=every)]
    return [SHAPES(every=every), *([CACHE()] if f.saw(RAN) else [])]


SPEC = CauseSpec(
    "recompile",
    kinds=frozenset({Kind.STALL, Kind.BOTTLENECK}),
    title="compiling again",
    colours=("#9a6700", "#e3b341"),
    group=groups.PYTHON,
    rules=(OrderedRule(claim, stall=50),),
    advice=_advice,
)
