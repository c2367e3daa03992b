# SPDX-License-Identifier: Apache-2.0
"""A process whose calls of CUDA are its clock: what gets probes, which call is taken, and when that is thought over."""

from __future__ import annotations

import json
import os
import random
import time
from ctypes import c_uint32
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from trainprobe.bpf import abi
from trainprobe.bpf.abi import BeatKind
from trainprobe.bpf.attach.cuda import OFTEN, RARE
from trainprobe.bpf.attach.gpu_clocks import MOST_LAUNCHES, GpuClocks
from trainprobe.bpf.attach.mark_table import RELEASES, Mark
from trainprobe.bpf.attach.marks import MappedCode
from trainprobe.model.moment import NS

PID, TID = 4711, 4712
PLACE = MappedCode(0, 1, 0, b"/x/libcudart.so.12")
STEP, LAUNCH = 0x1000, 0x2000
EVEN, BURST = 32, 4  # half octaves: 67 ms, 4 us
LOOKS = Path(__file__).parent / "looks"
"""Recorded counts of the calls by which a library that runs models let go of the interpreter's lock: what came from
look to look until one was taken, and all that came until the end of the training."""


@dataclass
class Beats:
    """The kernel's counts."""

    counts: dict[tuple[int, int, int], abi.GpuBeat] = field(default_factory=dict)

    def add(self, what: int, number: int, place: int, *, kind: BeatKind = BeatKind.WAIT, pid: int = PID) -> None:
        beat = self.counts.setdefault((pid, TID, what), abi.GpuBeat(kind=kind))
        beat.count += number
        beat.intervals[place] += number

    def entries(self) -> list[tuple[abi.GpuCaller, abi.GpuBeat]]:
        copies = [abi.GpuBeat.from_buffer_copy(bytes(beat)) for beat in self.counts.values()]
        return [(abi.GpuCaller(tgid=p, tid=t, what=w), b) for (p, t, w), b in zip(self.counts, copies)]

    def delete(self, key: abi.GpuCaller) -> bool:
        return self.counts.pop((key.tgid, key.tid, key.what), None) is not None


@dataclass
class Clocks:
    """The kernel's word for each process."""

    known: dict[int, int] = field(default_factory=dict)
    last: abi.GpuCaller | None = None

    def put(self, key: c_uint32, value: abi.GpuCaller) -> bool:
        self.last = value
        self.known[key.value] = value.what
        return True

    def delete(self, key: c_uint32) -> bool:
        return self.known.pop(key.value, None) is not None


class World:
    """One process that is looked at each second."""

    def __init__(self) -> None:
        self.beats, self.clocks, self.now = Beats(), Clocks(), time.monotonic_ns()
        self.probed: list[tuple[Mark, ...]] = []
        self.descriptors: list[int] = []
        self.made = GpuClocks(cast(Any, self.beats), cast(Any, self.clocks), self.attach)
        self.made.begin(PID)
        self.made.probe(PID, PLACE, RARE, OFTEN)

    def attach(self, pid: int, place: MappedCode, marks: tuple[Mark, ...]) -> list[int]:
        assert (pid, place) == (PID, PLACE)
        self.probed.append(marks)
        self.descriptors.append(os.open("/dev/null", os.O_RDONLY))
        return self.descriptors[-1:]

    def live(self, seconds: int, steps: int = 0, launches: int = 0, place: int = EVEN) -> None:
        for _ in range(seconds):
            self.now += NS
            if steps:
                self.beats.add(STEP, steps, place)
            if launches:
                self.beats.add(LAUNCH, launches, EVEN, kind=BeatKind.LAUNCH)
            for pid in self.made.look_after(self.now):
                self.made.probe(pid, PLACE, RARE, OFTEN)

    def let_go(self, descriptor: int) -> None:
        until = time.monotonic() + 10
        while os.path.exists(f"/proc/self/fd/{descriptor}"):
            assert time.monotonic() < until
            time.sleep(0.002)


def test_a_wait_that_comes_once_a_step_is_the_clock_and_no_launch_is_probed() -> None:
    world = World()
    world.beats.add(0x3000, 1000, EVEN, pid=PID + 1)  # somebody else's
    world.live(3, steps=random.randrange(5, 20))
    assert world.clocks.known == {PID: STEP}
    world.live(60, steps=10)
    assert world.probed == [RARE]
    world.made.close()
    assert world.clocks.known == {}
    world.let_go(world.descriptors[0])


def test_launches_are_probed_where_nothing_else_recurs() -> None:
    world = World()
    world.live(9, steps=40, place=BURST)
    assert world.probed == [RARE]
    world.live(2, steps=40, place=BURST)
    assert world.probed == [RARE, OFTEN]
    world.live(3, launches=15)
    assert world.clocks.known == {PID: LAUNCH}
    world.made.end(PID)
    for descriptor in world.descriptors:
        world.let_go(descriptor)


def test_too_many_launches_lose_their_probe_for_good() -> None:
    world = World()
    world.live(11)
    world.live(2, launches=2 * MOST_LAUNCHES)
    world.let_go(world.descriptors[1])
    world.live(100)
    assert world.probed == [RARE, OFTEN]
    assert world.clocks.known == {PID: 0}
    world.made.close()


def test_a_clock_that_has_stopped_is_thought_over_and_a_stall_is_not() -> None:
    world = World()
    world.live(3, steps=10)
    world.live(200)
    assert world.clocks.known == {PID: STEP}, "nothing else recurred meanwhile"
    for _ in range(25):
        world.beats.add(0x5000, 12, EVEN)
        world.live(1)
    assert world.clocks.known == {PID: 0x5000}
    world.made.close()


def test_bursts_of_a_library_that_runs_models_are_the_clock_when_the_start_is_over() -> None:
    """Whoever lets go of the interpreter's lock from elsewhere marks nothing. The pace is followed."""
    library, elsewhere = MappedCode(STEP, STEP + 1, 0, b"/x/libjax_common.so"), 0x4000
    world = World()
    world.made.end(PID)
    world.made.begin(PID, [library], alone=True)
    world.made.probe(PID, PLACE, (), RELEASES)
    assert world.probed == [RARE, RELEASES]
    for _ in range(3):
        world.beats.add(elsewhere, 20, EVEN, kind=BeatKind.RELEASE)
        world.beats.add(STEP, 5, EVEN + 12, kind=BeatKind.RELEASE)
        world.beats.add(STEP, 50, BURST, kind=BeatKind.RELEASE)
        world.live(1)
    assert world.clocks.known == {PID: 0}
    world.live(2)
    assert world.clocks.known == {PID: STEP}
    assert world.clocks.last is not None
    before = world.clocks.last.least
    world.beats.add(STEP, 500, EVEN, kind=BeatKind.RELEASE)
    world.live(12)
    assert world.clocks.last.least < before
    world.made.close()


def test_an_import_that_takes_many_releases_does_not_cost_the_clock() -> None:
    library = MappedCode(STEP, STEP + 1, 0, b"/x/_pywrap_tfe.so")
    world = World()
    world.made.end(PID)
    world.made.begin(PID, [library], alone=True)
    world.made.probe(PID, PLACE, (), RELEASES)
    world.beats.add(0x4000, 9 * MOST_LAUNCHES, EVEN - 20, kind=BeatKind.RELEASE)
    world.live(5)
    for _ in range(4):
        world.beats.add(STEP, 10, EVEN, kind=BeatKind.RELEASE)
        world.live(1)
    world.live(1)
    assert world.clocks.known == {PID: STEP}
    world.made.close()


@pytest.mark.parametrize("early", [-0.9, 0.0, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("flax_start_and_saves_call_it_too", 1100),
        ("flax_one_step_before_the_look", 1100),
        ("keras_tensorflow", 1101),  # the first is no step: nothing tells it from the one that compiles in Flax
    ],
)
def test_each_step_of_a_recorded_training_is_counted_once(name: str, steps: int, early: float) -> None:
    """However many seconds before its first call it was found: what is learnt from has a part of the start, or none."""
    library = MappedCode(STEP, STEP + 100, 0, b"/x/library.so")
    looks = json.loads((LOOKS / f"{name}.json").read_text())
    world = World()
    world.made.end(PID)
    world.made.begin(PID, [library], alone=True)
    world.made.probe(PID, PLACE, (), RELEASES)
    began = world.now
    for look in looks:
        for call, more in look["more"].items():
            for place, number in more.items():
                world.beats.add(STEP + int(call), number, int(place), kind=BeatKind.RELEASE)
        world.now = began + look["at_ms"] * 1_000_000 + int(early * NS)
        world.live(1)
    clock = world.clocks.last
    assert clock is not None
    assert clock.what
    octave = clock.least.bit_length() - 1
    intervals = world.beats.counts[PID, TID, clock.what].intervals
    gaps = sum(intervals[2 * octave + (clock.least >> (octave - 1) & 1) :])
    world.made.close()
    assert gaps + 1 - clock.starting == steps, "the first burst is a step that no gap comes before"
