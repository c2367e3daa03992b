"""No reader raises anything but its own refusal, or takes long, whatever it is given. The long run is at night."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.unit.hostile.mutation import mutated
from tests.unit.hostile.readers import READERS, Reader

CASES, CASES_AT_NIGHT = 200, 100_000
LONG = 2.0  # seconds of CPU for one input of a few kilobytes


def fuzz(reader: Reader, cases: int, seed: int) -> int:
    """Runs that many cases; how many the reader took as right. Fails with the input that it could not bear."""
    chance, seeds, taken = random.Random(seed), reader.seeds(), 0
    for data in (*seeds, *(mutated(chance, seeds) for _ in range(cases))):
        began = time.process_time()
        try:
            reader.read(data)
            taken += 1
        except reader.refusals:
            pass
        except Exception as error:
            raise AssertionError(f"{reader.name}, seed {seed}: {type(error).__name__}: {error}\n{data!r}") from error
        took = time.process_time() - began
        assert took < LONG, f"{reader.name}, seed {seed}: {took:.1f} s for {data!r}"
    assert taken, f"{reader.name}, seed {seed}: not even a seed was right"
    return taken


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_it_refuses_or_takes_what_is_almost_right(reader: Reader) -> None:
    fuzz(reader, CASES // reader.cost, random.getrandbits(32))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_hundred_thousand_times(reader: Reader) -> None:
    """1.7 million cases in all; ``TRAINPROBE_SEED`` repeats a night."""
    seed = int(os.environ.get("TRAINPROBE_SEED") or random.getrandbits(32))
    taken = fuzz(reader, CASES_AT_NIGHT, seed)
    assert taken < CASES_AT_NIGHT or not reader.refusals, "nothing was refused: the cases are too tame"
