"""A training on a GPU that stalls as its plan (JSON, the only argument) says, and writes down what happened.

``scene``: plain, streams, compile or ddp. ``faults``: step -> what is done there. Without ``steps`` it does what lines
on stdin ask for ("step N", "sync N"), each answered with nanoseconds a step or call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from devices import Device, PaperGpu, RealGpu, gaps
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

MB = 1 << 20
LEAST_GAP = 0.2
CHURN_SECONDS = 0.15
CAUSES = {"checkpoint": "checkpoint", "loader": "data_cpu", "python": "cpu_bound", "churn": "gpu_memory"}


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Batches(IterableDataset[torch.Tensor]):
    """One worker; the batches of some steps take long."""

    def __init__(self, slow: dict[int, float], width: int) -> None:
        self.slow, self.width = slow, width

    def __iter__(self) -> Iterator[torch.Tensor]:
        for step in range(1 << 30):
            spin(self.slow.get(step, 0.0))
            yield torch.randn(32, self.width)


class Training:
    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan, self.scene = plan, plan["scene"]
        self.device: Device = PaperGpu(plan["paper"]) if plan.get("paper") else RealGpu()
        self.faults = {int(step): fault for step, fault in plan.get("faults", {}).items()}
        self.planted: list[dict[str, Any]] = []
        self.steps: list[tuple[int, int]] = []
        self.refused = 0
        width = 64
        model: Any = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)).to(self.device.name)
        if self.scene == "ddp":
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
            os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
            store = torch.distributed.HashStore()
            torch.distributed.init_process_group(self.device.backend, store=store, rank=0, world_size=1)
            model = nn.parallel.DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        self.model = torch.compile(model, **self.device.compile_options) if self.scene == "compile" else model
        slow = {step: plan["seconds"] for step, fault in self.faults.items() if fault == "loader"}
        loader = DataLoader(Batches(slow, width), batch_size=None, num_workers=1, prefetch_factor=2)
        self.batches = iter(loader if plan.get("loader") else Batches({}, width))

    def step(self, number: int) -> None:
        begun, first = time.monotonic_ns(), self.device.mark()
        if fault := self.faults.get(number):
            self.carry_out(fault, number)
        batch = next(self.batches).to(self.device.name)
        if fault == "loader":
            self.note(fault, begun, first)
        self.optimizer.zero_grad()  # a graph of CUDA overwrites the gradients that it gave
        with torch.autocast(self.device.name, torch.bfloat16, enabled=self.scene == "streams"):
            loss = self.model(batch).sum()
        loss.backward()
        streams = (1, 2) if self.scene == "streams" else (0,)
        for stream in streams:
            self.device.work(self.plan["work"] / len(streams), stream)
        self.optimizer.step()
        self.device.wait()
        self.steps.append((begun, time.monotonic_ns()))

    def carry_out(self, fault: str, number: int) -> None:
        begun, first = time.monotonic_ns(), self.device.mark()
        if fault == "checkpoint":
            self.save(Path(self.plan["folder"]) / f"step-{number}.pt")
        elif fault == "python":
            spin(self.plan["seconds"])
        elif fault == "churn":
            self.device.churn(CHURN_SECONDS)
        elif fault == "exhaust":
            self.refused += self.device.exhaust()
            return
        else:  # the loader's: noted when the batch has come
            return
        self.note(fault, begun, first)

    def note(self, fault: str, begun: int, first: Any) -> None:
        self.planted.append(
            {"cause": CAUSES[fault], "begin": begun, "end": time.monotonic_ns(), "marks": (first, self.device.mark())}
        )

    def save(self, path: Path) -> None:
        """From the GPU's memory, to a disk of whatever speed."""
        chunk = torch.zeros(16 * MB, dtype=torch.uint8, device=self.device.name)
        until = time.perf_counter() + self.plan["seconds"]
        with path.open("wb") as file:
            while time.perf_counter() < until:
                torch.save(chunk, file)
                file.flush()
                os.fsync(file.fileno())
        path.unlink()

    def truth(self) -> dict[str, Any]:
        for one in self.planted:
            one["idle_seconds"] = self.device.between(*one.pop("marks"))
        return {"steps": len(self.steps), "planted": self.planted, "refused": self.refused, "times": self.steps}


def asked_for(training: Training) -> None:
    """Only what is asked for: see above."""
    done = 0
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        kind, count = line.split()
        begun = time.perf_counter_ns()
        if kind == "step":
            for number in range(done, done + int(count)):
                training.step(number)
            done += int(count)
        else:
            training.device.synchronize(int(count))
        print((time.perf_counter_ns() - begun) / int(count), flush=True)


def main() -> None:
    plan = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    training = Training(plan)
    if "steps" not in plan:
        asked_for(training)
        return
    if plan.get("profile"):
        training.device.profile_begin()
    for number in range(plan["steps"]):
        training.step(number)
    training.device.wait()
    truth = training.truth()
    if plan.get("profile"):
        begun = time.monotonic_ns()
        truth["profiled_gaps"] = gaps(training.device.profile_end(), LEAST_GAP)
        truth["profiler_seconds"] = (time.monotonic_ns() - begun) / 1e9
    Path(plan["truth"]).write_text(json.dumps(truth))
    if training.scene == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
