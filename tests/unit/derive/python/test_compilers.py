"""A compiler before the ordinary step is known is a phase; afterwards its time is lost."""

from __future__ import annotations

import pytest

from tests.builders.driver import Driver, played
from tests.unit.pipeline.test_pipeline import adds_up, rank_of
from trainprobe.derive.python.compilers import folder_of, in_compiler
from trainprobe.model.cells import Leaf, Region
from trainprobe.model.event import FileEventKind, ProcessEvent, ProcessEventKind, StackSeen
from trainprobe.model.report import Rank

COMMAND = ("g++", "/tmp/torchinductor_user/ab/cabc.main.cpp", "-O3", "-o", "cabc.so")


def compile_(driver: Driver, pid: int, seconds: float, comm: str = "g++") -> None:
    """The driver waits while a child runs a program."""
    driver.fork(pid)
    driver.events.append(ProcessEvent(ProcessEventKind.EXEC, driver.now, pid, comm=comm, command=(comm, *COMMAND[1:])))
    driver.spend(seconds, Leaf.POLL)
    driver.die(pid)


def begun(*, compiled: float = 0.0) -> Driver:
    driver = Driver()
    driver.begin()
    if compiled:
        compile_(driver, 3000, compiled)
    driver.train(40)
    return driver


def judged(driver: Driver) -> Rank:
    driver.train(20)
    driver.exit()
    rank = rank_of(played(driver), driver)
    adds_up(rank)
    return rank


def test_a_compiler_in_the_midst_of_the_training_is_lost_time() -> None:
    driver = begun()
    compile_(driver, 3001, 2.0)
    rank = judged(driver)
    (stall,) = rank.stalls
    assert stall.cause == "recompile"
    assert stall.seconds == pytest.approx(2.0, abs=0.1)
    values = {one.key: (one.value, one.path) for one in stall.evidence}
    assert values["recompile.ran"][0] == pytest.approx(2.0, abs=0.05)
    assert values["recompile.count"] == (1, "/tmp/torchinductor_user/ab")
    assert "compile" not in {span.phase for span in rank.phases}
    assert rank.verdict.cause == "recompile"


def test_a_compiler_before_the_ordinary_step_is_a_phase_and_not_counted_twice() -> None:
    rank = judged(begun(compiled=3.0))
    assert rank.stalls == []
    spans = [(span.phase, round(span.end - span.start, 1)) for span in rank.phases if span.end is not None]
    assert [phase for phase, _ in spans] == ["startup", "compile", "startup", "shutdown"]
    assert spans[1] == ("compile", 3.0)


@pytest.mark.parametrize(("comm", "saves"), [("cc1plus", 0), ("python", 1)])
def test_what_a_compiler_writes_is_no_save(comm: str, saves: int) -> None:
    driver = begun()
    driver.fork(3001)
    driver.events.append(ProcessEvent(ProcessEventKind.EXEC, driver.now, 3001, comm=comm, command=("", "run.py")))
    begin, size = driver.now, 60_000_000
    for kind in (FileEventKind.OPENED, FileEventKind.CLOSED):
        driver.file(kind, "/run/model.pt", 77, begin, size, 100_000_000, pid=3001, tid=3001)
        driver.spend(0.1, Leaf.POLL)
    assert len(judged(driver).checkpoints) == saves


@pytest.mark.parametrize(
    ("inner", "cause"),
    [
        ("compile_inner (torch/_dynamo/convert_frame.py:700)", "recompile"),
        ("backend_compile (compiler.py:320)", "recompile"),
        ("backend_compile (jax/compiler.py:320)", "recompile"),
        ("do_bench (triton/testing.py:100)", "recompile"),
        ("CachingAutotuner.benchmark_all_configs (torch/triton_heuristics.py:900)", "recompile"),
        ("func_graph_from_py_func (tensorflow/func_graph.py:1100)", "recompile"),
        ("JITFunction.run (triton/jit.py:600)", "cpu_bound"),
        ("compile_statistics (report.py:70)", "cpu_bound"),
    ],
)
def test_what_compiles_on_the_driver_itself_is_told_by_its_stacks(inner: str, cause: str) -> None:
    driver = begun()
    pipeline = played(driver)
    driver.spend(1.5)
    frames = ("<module> (train.py:9)", inner, "helper (helper.py:3)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.train(20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == cause
    assert stall.seconds == pytest.approx(1.5, abs=0.1)
    if cause == "recompile":
        others = any(name in inner for name in ("(jax", "(triton", "(tensorflow"))
        assert ("TORCH_LOGS" in stall.advice[0]) != others


@pytest.mark.parametrize(
    "inner",
    [
        ("compile_inner (torch/convert_frame.py:700)", "load_by_key_path (torch/codecache.py:2000)"),
        ("CachingAutotuner.benchmark_all_configs (torch/triton_heuristics.py:900)",),
    ],
)
def test_kernels_that_torch_lets_triton_compile_are_torchs(inner: tuple[str, ...]) -> None:
    driver = begun()
    pipeline = played(driver)
    driver.spend(1.5)
    frames = ("<module> (train.py:9)", *inner, "compile (triton/compiler.py:300)")
    driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, frames))
    driver.train(20)
    (stall,) = rank_of(played(driver, pipeline), driver).stalls
    assert stall.cause == "recompile"
    assert "TORCH_LOGS" in stall.advice[0]


def test_an_evaluation_whose_graph_is_compiled_first_is_its_own_behind_that() -> None:
    driver = begun()
    pipeline = played(driver)
    outer = ("<module> (train.py:9)", "evaluate (train.py:30)", "forward (model.py:9)")
    for frames in (2 * [(*outer, "_compile (torch/convert_frame.py:1000)")], [outer]):
        for stack in frames:
            driver.spend(2.0, Leaf.CPU, Region.NO_GRAD)
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, stack, running=True))
    for _ in range(4):
        driver.fetch()
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {"recompile": pytest.approx(4.0, abs=0.1)}
    assert rank.counters.phase_seconds["evaluation"] == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("stacks", [True, False])
@pytest.mark.parametrize(("batches", "told"), [(0, 3.0), (25, 2.0)])
def test_an_evaluation_goes_on_behind_the_compilers_of_its_graph(stacks: bool, batches: int, told: float) -> None:
    """A second of tracing before them is theirs where nothing is evaluated."""
    driver = begun()
    pipeline = played(driver)
    driver.fetch()
    driver.spend(1.0, Leaf.CPU, Region.NO_GRAD if batches else Region.STEP)
    compile_(driver, 3001, 2.0)
    for _ in range(batches):
        driver.fetch()
        driver.spend(0.1, Leaf.CPU, Region.NO_GRAD)
        if stacks:
            outer = ("<module> (train.py:9)", "evaluate (train.py:30)", "forward (model.py:9)")
            driver.events.append(StackSeen(driver.now, driver.pid, driver.tid, outer, running=True))
    driver.train(20)
    rank = rank_of(played(driver, pipeline), driver)
    assert rank.lost == {"recompile": pytest.approx(told, abs=0.1)}
    assert rank.counters.phase_seconds.get("evaluation", 0.0) == pytest.approx(0.1 * batches + 3 - told, abs=0.1)
    adds_up(rank)


def test_compiled_code_that_runs_is_no_compiling() -> None:
    assert not in_compiler(
        ("compile_wrapper (eval_frame.py:804)", "forward (aot_autograd.py:1180)", "call (cabc.py:60)")
    )
    assert not in_compiler(())


def test_the_folder_of_a_source() -> None:
    assert folder_of(COMMAND) == "/tmp/torchinductor_user/ab"
    assert folder_of(("g++", "main.cpp")) == folder_of(()) == ""


def slow_step(program: str, ran: float, slow: float = 1.2) -> Rank:
    """Forty steps, one that is late while a child runs ``program`` for a part of it, and forty more."""
    driver = Driver()
    driver.begin()
    driver.fork(2000)
    driver.train(40)
    driver.fork(3000)
    ran_it = ProcessEvent(ProcessEventKind.EXEC, driver.now, 3000, driver.pid, program, command=(program, "-q"))
    driver.events.append(ran_it)
    driver.spend(ran)
    driver.die(3000)
    driver.spend(slow - ran)
    driver.train(40)
    driver.exit()
    return rank_of(played(driver), driver)


@pytest.mark.parametrize("program", ["cc1plus", "g++", "ptxas"])
def test_a_step_in_which_a_compiler_runs_is_lost(program: str) -> None:
    rank = slow_step(program, 1.0)
    (stall,) = rank.stalls
    assert (stall.cause, stall.seconds) == ("recompile", pytest.approx(1.2, abs=0.02))
    assert rank.counters.phase_seconds["compile"] == 0.0
    adds_up(rank)


@pytest.mark.parametrize(("program", "ran"), [("nvidia-smi", 1.0), ("git", 1.0), ("g++", 0.2)])
def test_another_program_or_a_short_compiler_explains_no_slow_step(program: str, ran: float) -> None:
    rank = slow_step(program, ran)
    assert rank.counters.phase_seconds["compile"] == 0.0
    assert [stall.cause for stall in rank.stalls] == ["cpu_bound"]
    assert rank.stalls[0].seconds == pytest.approx(1.2, abs=0.02)
    adds_up(rank)


def test_a_slow_first_step_is_start_up_and_no_compiling() -> None:
    driver = Driver()
    driver.begin()
    driver.spend(6.0)
    driver.train(40)
    driver.exit()
    rank = rank_of(played(driver), driver)
    assert rank.stalls == []
    assert rank.counters.phase_seconds["compile"] == 0.0
    assert rank.counters.phase_seconds["startup"] >= 6.0
    adds_up(rank)
