# SPDX-License-Identifier: Apache-2.0
"""Many ledgers, read at once and looked at one after the other."""

from __future__ import annotations

import tracemalloc
from ctypes import sizeof

from trainprobe.bpf import abi
from trainprobe.bpf.read.ledgers import ManyLedgers

STRIDE = -(-sizeof(abi.Ledger) // 8) * 8


def places(number: int) -> bytes:
    """As many, of threads 1000, 1001 … of process 7."""
    made = (bytes(abi.Ledger(tid=1000 + place, tgid=7, steps=place)) for place in range(number))
    return b"".join(one.ljust(STRIDE, b"\0") for one in made)


def test_each_thread_has_its_own_ledger_and_none_that_became_anothers() -> None:
    ledgers = ManyLedgers(places(10), [(1003, 3), (1004, 4), (999, 5), (1006, 6)])
    assert [(tid, ledger.tid, ledger.steps) for tid, ledger in ledgers] == [
        (1003, 1003, 3),
        (1004, 1004, 4),
        (1006, 1006, 6),
    ]
    assert len(ledgers) == 3
    assert (ledgers[1][1].steps, [tid for tid, _ in ledgers[1:]]) == (4, [1004, 1006])
    assert not ManyLedgers(places(1), [])


def test_thousands_are_never_there_together() -> None:
    data = places(abi.LEDGERS)
    tracemalloc.start()
    try:
        ledgers = ManyLedgers(data, [(1000 + place, place) for place in range(abi.LEDGERS)])
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        steps = sum(ledger.steps for _, ledger in ledgers)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert steps == sum(range(abi.LEDGERS))
    assert peak - before < 10 * STRIDE
