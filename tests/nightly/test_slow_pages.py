"""Batches whose pages come from slow storage or from swap in memory: the seconds are those of the training's clock."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.limits import places
from benchmarks.programs import environment, trainprobe
from benchmarks.stalls.host import CannotHere, Place
from benchmarks.stalls.plan import Device

MB = 1 << 20
SCRIPT = """
import json, mmap, os, sys, time, torch
how, folder, truth = sys.argv[1:]
torch.set_num_threads(1)
PAGE, PIECE = 4096, 24 << 20
held = bytearray(os.urandom(PAGE)) * ((400 << 20) // PAGE) if how == "swap" else b""

def touched(pages, count):
    return sum(pages[place] for place in range(0, count, PAGE))

def load(number):
    if how == "swap":
        begin = number * PIECE % (len(held) - PIECE)
        return touched(memoryview(held)[begin:], PIECE)
    with open(f"{folder}/shard-{number}.bin", "rb") as file:
        if how == "read":
            return len(file.read())
        pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        return touched(pages, len(pages))

data = torch.randn(16, 256)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
lost = []
for step in range(420):
    begun, usual = time.perf_counter(), step < 100 or step % 20
    if not usual:
        load(step // 20 - 5)
        lost.append(time.perf_counter() - begun)
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
    time.sleep(0.03)
json.dump(lost, open(truth, "w"))
"""


def watched(
    how: str, folder: Path, tmp_path: Path, python: str, around: places.Place
) -> tuple[dict[str, float], float]:
    script, truth, report = tmp_path / "train.py", tmp_path / "truth.json", tmp_path / "report.json"
    script.write_text(SCRIPT)
    with around(tmp_path) as inside:
        command = inside([python, str(script), how, str(folder), str(truth)])
        record = str(tmp_path / "recording.jsonl")
        subprocess.run(
            trainprobe("run", "-o", str(report), "--record", record, "--", *command),
            timeout=170, env=environment(), check=True, capture_output=True,
        )  # fmt: skip
    (rank,) = json.loads(report.read_text())["runs"][0]["ranks"]
    return rank["lost"], sum(json.loads(truth.read_text()))


@pytest.mark.parametrize(("how", "cause"), [("read", "data_storage"), ("map", "data_storage"), ("swap", "swap")])
def test_the_seconds_are_those_of_the_trainings_clock(how: str, cause: str, tmp_path: Path, torch_python: str) -> None:
    try:
        if how == "swap":
            around = places.swapping(300 * MB)
            lost, true = watched(how, tmp_path, tmp_path, torch_python, around)
        else:
            with Place(Device(read_rate=40 * MB, files=16, file_bytes=16 * MB)) as place:
                lost, true = watched(how, place.slow, tmp_path, torch_python, places.anywhere)
    except CannotHere as reason:
        pytest.skip(str(reason))
    print(f"{how}: lost {lost}, by the clock {true:.2f} s")
    contention = lost.get("cpu_contention", 0.0)
    assert lost[cause] == pytest.approx(true, rel=0.1, abs=contention), lost
