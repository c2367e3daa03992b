"""A training that saves, evaluates, waits for data and is killed, with a clock of its own.

``killed_training.py STATE STEPS KILL_AT``: goes on from the last checkpoint in STATE, kills itself after KILL_AT
steps of its own. Each line of STATE/clock is what an attempt spent so far, in seconds, each flushed to the disk.
"""

import json
import os
import signal
import sys
import time

started = float(os.environ["STARTED"])
import torch  # noqa: E402 - its import is what the clock measures
import torch._dynamo  # noqa: E402 - an optimizer imports it

imported = time.time()
state, steps, kill_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
checkpoint = os.path.join(state, "last.ckpt")
spent = {"imports": imported - started, "restore": 0.0, "save": 0.0, "data": 0.0, "evaluation": 0.0, "useful": 0.0}
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
ballast, done = [torch.rand(1 << 20) for _ in range(24)], 0
begun = time.time()
if os.path.exists(checkpoint):
    kept = torch.load(checkpoint)
    model.load_state_dict(kept["model"])
    done = kept["step"]
spent["restore"] = time.time() - begun
begun, read = time.time(), 0
while time.time() - begun < 1.0:  # it walks its data
    for name in os.listdir(os.path.join(state, "images")):
        with open(os.path.join(state, "images", name), "rb") as image:
            read += len(image.read())


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if index and index % 110 == 0:
            time.sleep(1.2)  # a slow disk
        return torch.rand(64, 512)


def evaluate():
    model.eval()
    until = time.time() + 0.8
    with torch.no_grad():
        while time.time() < until:
            model(torch.rand(1024, 512)).sum().item()
    model.train()


def write_clock(**more):
    with open(os.path.join(state, "clock"), "a") as file:
        file.write(json.dumps({**spent, "step": done, "at": time.time(), "started": started, **more}) + "\n")
        file.flush()
        os.fsync(file.fileno())


first, waited = True, 0.0
for number, batch in enumerate(torch.utils.data.DataLoader(Rows(), batch_size=None)):
    began = time.time()
    spent["data"] += began - waited if waited else 0.0
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    if first:
        spent["first_step"], first = time.time() - started, False
    optimizer.step()
    done += 1
    time.sleep(0.02)
    spent["useful"] += time.time() - began
    if number == kill_at:
        write_clock(killed=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if done % 100 == 0:
        began = time.time()
        torch.save({"model": model.state_dict(), "step": done, "ballast": ballast}, checkpoint + ".tmp")
        with open(checkpoint + ".tmp", "rb+") as file:
            os.fsync(file.fileno())
        os.replace(checkpoint + ".tmp", checkpoint)
        spent["save"] += time.time() - began
        write_clock(saved=spent["useful"])
    if done % 90 == 0:
        began = time.time()
        evaluate()
        spent["evaluation"] += time.time() - began
    waited = time.time()
    if done >= steps:
        break
write_clock(finished=True)
