"""A training that imports, walks a directory, restores a checkpoint and starts workers: each part beside its clock."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest

from benchmarks.programs import environment, trainprobe

SCRIPT = """
import time
begun = time.monotonic()
import json, os, sys, torch, torch._dynamo
sys.path.append(os.path.join(os.path.dirname(sys.argv[0]), "site-packages"))
import mmengine.runner.loops
took = {"imports": time.monotonic() - begun}
torch.set_num_threads(1)
folder, checkpoint, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])

begun = time.monotonic()
names = [os.path.join(where, name) for where, _, found in os.walk(folder) for name in found]
sizes = []
while time.monotonic() - begun < pause:
    sizes += [os.stat(name).st_size for name in names]
    sizes += [len(open(name, "rb").read()) for name in names]
took["dataset"] = time.monotonic() - begun

begun = time.monotonic()
state = torch.load(checkpoint)
took["restore"] = time.monotonic() - begun
time.sleep(pause)

begun = time.monotonic()
data = torch.utils.data.TensorDataset(torch.rand(640, 64))
batches = iter(torch.utils.data.DataLoader(data, 16, num_workers=2, worker_init_fn=lambda _: time.sleep(pause)))
next(batches)
took["workers"] = time.monotonic() - begun

model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for (batch,) in batches:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
print(json.dumps(took))
"""
FILES, TENSORS = 2000, 40


@pytest.mark.timeout(120)
def test_the_parts_of_the_start_are_told_and_add_up(tmp_path: Path, torch_python: str, seed: int) -> None:
    draw = random.Random(seed)
    pause = draw.uniform(0.8, 1.6)
    folder, checkpoint, report = tmp_path / "images", tmp_path / "last.ckpt", tmp_path / "report.json"
    for number in range(FILES):
        image = folder / str(number % 20) / f"{number}.jpg"
        image.parent.mkdir(parents=True, exist_ok=True)
        image.write_bytes(bytes(2000))
    save = f"import torch; torch.save([torch.rand(1 << 20) for _ in range({TENSORS})], {str(checkpoint)!r})"
    subprocess.run([torch_python, "-c", save], check=True, timeout=60)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    loops = tmp_path / "site-packages" / "mmengine" / "runner" / "loops.py"
    loops.parent.mkdir(parents=True)
    loops.write_text("")
    record = tmp_path / "recording.jsonl"
    command = trainprobe("run", "-o", report, "--record", record, "--", torch_python, script, folder, checkpoint, pause)
    ended = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=100, env=environment(), check=True
    )
    truth = json.loads(ended.stdout)
    (run,) = json.loads(report.read_text())["runs"]
    (rank,) = run["ranks"]
    told = rank["startup"]
    for part, seconds in truth.items():
        assert told[part] == pytest.approx(seconds, rel=0.1, abs=0.3), (part, told, truth)
    assert told["other"] >= pause - 0.05
    (restore,) = rank["restores"]
    assert restore["path"] == str(checkpoint)
    assert restore["bytes"] == pytest.approx(checkpoint.stat().st_size, rel=0.05)
    assert restore["seconds"] == pytest.approx(truth["restore"], rel=0.1, abs=0.3)
    assert sum(told.values()) <= rank["phases"][0]["end"] - rank["phases"][0]["start"]
    frames = map(json.loads, record.read_text().splitlines())
    (start,) = (event for frame in frames for event in frame.get("events", ()) if event["e"] == "start")
    assert start["loops"] == ["mmengine"]
    assert "to the first step: " in ended.stderr
    assert "restoring last.ckpt: " in ended.stderr
