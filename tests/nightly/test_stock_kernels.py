"""The distribution's stock kernel under qemu: older, with kprobes, and switched to full preemption."""

from __future__ import annotations

import os
import shlex
import shutil

import pytest

from tests.nightly import machine
from tests.nightly.watch import assert_accounted, said

PREEMPTION = {"as shipped": "", "full preemption": "preempt=full"}
PYTHON = ".venv/bin/python"
NOT_IN_A_GUEST = {
    "test_programs.py": "its limits are for a processor, not for the emulation of one",
    "test_training.py": "the same; watch.py watches a training there",
    "test_cuda.py::test_what_is_waited_for_the_gpu_is_told": "more of its first waits pass before the marks are found",
    "test_cuda.py::test_copies_and_calls_within_calls": "the same",
    "test_cuda.py::test_allocations_are_counted_with_what_they_take": "the same",
    "test_ledger.py::test_who_is_woken_and_finds_no_processor_waits_for_one[moved between them]": "timers are late",
    "test_held.py::test_steps_in_time_are_told_together": "its steps are ten milliseconds, more of a second there",
    "test_held.py::test_who_may_no_longer_wait_is_told_of_with_the_next_step": "the same",
    "test_files.py::test_an_inherited_descriptor_is_named": "mounts are read after so short a process has ended",
    "test_files.py::test_a_log_opened_for_every_line_is_told_once_a_second": "its writes take too long to be small",
    "test_memory.py::test_major_faults_on_a_mapped_file": "there is no disk, so no fault on a file is a major one",
}


@pytest.fixture(scope="module")
def kernel() -> machine.Kernel:
    if shutil.which("qemu-system-x86_64") is None:
        pytest.fail("no qemu-system-x86_64; as root run: apt-get install -y qemu-system-x86")
    return machine.stock_kernel()


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("parameters", PREEMPTION.values(), ids=PREEMPTION.keys())
def test_the_kernel_tests_pass_there(kernel: machine.Kernel, parameters: str) -> None:
    options = ["--color=no", "-v", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--timeout=600"]
    options += [f"--deselect=tests/kernel/{name}" for name in NOT_IN_A_GUEST]
    pytest_there = shlex.join([PYTHON, "-m", "pytest", *options, "-m", "not nightly", "tests/kernel"])
    torch = shlex.quote(os.environ.get("TRAINPROBE_TORCH_PYTHON", ""))
    done = machine.run(
        kernel,
        f"TRAINPROBE_REQUIRE_KERNEL=1 TRAINPROBE_TORCH_PYTHON={torch} {pytest_there}",
        parameters=parameters,
        timeout=2400,
    )
    print(done.output[-20_000:])
    assert done.code == 0, f"guest ended with {done.code} after {done.seconds:.0f} s"


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("parameters", PREEMPTION.values(), ids=PREEMPTION.keys())
def test_the_ledger_of_a_preempted_training_adds_up(kernel: machine.Kernel, torch_python: str, parameters: str) -> None:
    """Steps exact, states equal to wall time, with more busy processes than CPUs: a uprobe's program may be preempted
    in the middle of its update, which must lose nothing."""
    watching = f"{PYTHON} tests/nightly/watch.py {shlex.quote(torch_python)} 150 3"
    done = machine.run(kernel, watching, parameters=parameters, memory="4G", timeout=1200)
    print(done.output[-20_000:])
    # A fault on a file that comes from the host lasts long there, and its kernel stack may be deeper than we look.
    assert_accounted(said(done.output), unexplained=0.10)
