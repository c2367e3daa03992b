from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator

import pytest

from trainprobe.runtime.loop.signals import Signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    taken = Signals([signal.SIGUSR1, signal.SIGUSR2])
    yield taken
    taken.close()


def test_a_signal_is_read_with_the_kind_of_its_sender(signals: Signals) -> None:
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # other tests' threads do not block it
    assert select.select([signals], [], [], 5)[0]
    (received,) = signals.read()
    assert (received.number, received.by_process) == (signal.SIGUSR1, True)
    assert signals.read() == []


def test_what_was_ignored_stays_ignored() -> None:
    """nohup: SIGHUP must not end what runs under it."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        signals = Signals([signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.read() == []
        signals.close()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_mask_is_given_back() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    Signals([signal.SIGUSR1]).close()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
