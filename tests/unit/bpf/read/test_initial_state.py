# SPDX-License-Identifier: Apache-2.0
"""The first leaf of a thread that already waits: as the kernel's programs book the same wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.kernel.test_ledger import PIPE, WAITS
from trainprobe.bpf.read import initial_state
from trainprobe.collect.procfs import Proc
from trainprobe.model.cells import Leaf

NOT_IN_PROC = {  # what only the kernel's programs read
    "poll-on-pipe": Leaf.POLL,
    "poll-on-a-pair": Leaf.POLL,
    "socketpair": Leaf.SOCKET,
    "read-of-a-pair": Leaf.SOCKET,
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_that_has_begun_is_in_the_leaf_that_the_kernel_gives_it(name: str) -> None:
    leaf, before, wait = WAITS[name]
    before = before.replace("0.3", "60")
    program = f"{PIPE}{before}print('waits', flush=True)\n{wait.replace('0.3', '60')}"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
            assert _settles(process.pid) == NOT_IN_PROC.get(name, leaf)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its children, too


def _settles(pid: int) -> Leaf | None:
    """The leaf that is found twice, 50 ms apart: the thread waits."""
    last = None
    for _ in range(100):
        found = initial_state.doing(pid, pid, Proc())
        leaf = found.leaf if found is not None else None
        if leaf == last and leaf not in (None, Leaf.CPU):
            return leaf
        last = leaf
        time.sleep(0.05)
    return last
