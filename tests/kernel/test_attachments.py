# SPDX-License-Identifier: Apache-2.0
"""Where nobody trains, no system call of the host runs a program; who begins to is seen from the start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.kernel.observing import Observed, await_true
from tests.kernel.test_files import LIBAIO, SETUP
from trainprobe.bpf.attach import attachments
from trainprobe.bpf.attach.attachments import KEPT
from trainprobe.bpf.probes import Probes
from trainprobe.collect.procfs import Proc
from trainprobe.model.cells import Leaf

STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[Probes]:
    """Probes of a host on which nobody has trained for a while, with the kernel's counts of runs."""
    monkeypatch.setattr(attachments, "IDLE_NS", 300_000_000)
    monkeypatch.setattr(attachments, "LOOK_NS", 0)
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    probes = Probes.start(Proc(), auto=True)
    try:
        probes.await_marks()  # until then the compiler's child has what is attached, too
        await_detached(probes)
        yield probes
    finally:
        probes.close()
        STATISTICS.write_text(before)


def detached(probes: Probes) -> bool:
    probes.drain()
    closer = probes._attachments._closer
    return closer is not None and not closer.is_alive()


def await_detached(probes: Probes) -> None:
    await_true(partial(detached, probes), "nothing to be attached", 60)


def runs(probes: Probes) -> dict[str, int]:
    return {name: count for name, count in probes.cost()[1].items() if name not in KEPT}


def writes(directory: Path) -> None:
    """A bystander's system calls, switches and forks."""
    subprocess.run(["sh", "-c", f"for i in 1 2 3; do echo x > {directory}/x; sleep 0.01; done"], check=True)


def test_a_bystander_runs_no_program_where_nothing_is_watched(idle: Probes, tmp_path: Path) -> None:
    before = runs(idle)
    writes(tmp_path)
    assert runs(idle) == before
    idle.watch(os.getpid())
    writes(tmp_path)
    assert all(runs(idle)[name] > before[name] for name in ("on_switch", "on_fork", "on_exit", "on_write_begin"))
    idle.unwatch(os.getpid())


def test_what_is_watched_next_is_seen_whole(idle: Probes, tmp_path: Path) -> None:
    body = (
        "import sys, time\nfor i in range(3): open(sys.argv[1] + f'/{i}.pt', 'wb').write(bytes(1 << 20))\n"
        "time.sleep(0.3)"
    )
    program = Observed.python(idle, body, str(tmp_path))
    told = program.go().finish()
    assert [told.written(f"{tmp_path}/{i}.pt") for i in range(3)] == [1 << 20] * 3
    assert told.seconds(Leaf.SLEEP) == pytest.approx(0.3, abs=0.03)
    assert told.processes()[-1].code == 0


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system call numbers of x86-64")
def test_two_programs_at_one_call_come_back_in_their_order(idle: Probes, tmp_path: Path) -> None:
    """What io_submit(2) is given is noted by the first, for the second."""
    path = tmp_path / "model.pt"
    told = Observed.python(idle, SETUP + LIBAIO, str(path), "").go().finish()
    assert told.status == 0
    assert told.written(str(path)) == path.stat().st_size


def test_a_python_that_starts_is_kept_in_case_it_trains(idle: Probes) -> None:
    python = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        await_true(lambda: not detached(idle) and not idle._attachments.idle, "the programs")
        await_detached(idle)  # it has run for long, and does not train
    finally:
        python.kill()
        python.wait()
