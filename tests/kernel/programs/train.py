# SPDX-License-Identifier: Apache-2.0
"""A small real training that tells its own truth: JSON on stdout, {"counts", "wall", …}. Starts when stdin says so."""

import argparse
import gc
import json
import os
import subprocess
import sys
import threading
import time

import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, length: int, seconds: float) -> None:
        self.length, self.seconds = length, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.seconds:
            time.sleep(self.seconds)
        return torch.full((64,), float(index % 7))


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("on purpose")


class Monitors:
    """Programs that sleep: one from the start, one from a later step on."""

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.running = wanted, []

    def start(self) -> None:
        if self.wanted:
            self.running.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]))

    def at(self, number: int) -> None:
        if number == 20:
            self.start()

    def end(self) -> None:
        for one in self.running:
            one.kill()
            one.wait()


class Beside:
    """What a step does beside its training: it writes a line, and computes."""

    def __init__(self, args, counts) -> None:
        self.seconds, self.counts = args.step_seconds, counts
        self.log = os.open(args.log_to, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if args.log_to else None
        counts["logged"] = 0

    def do(self, number: int, model, batch) -> None:
        if self.log is not None:
            self.counts["logged"] += os.write(self.log, b"x" * (1000 + number * 7 % 1000))
        start = time.monotonic()
        while time.monotonic() - start < self.seconds:
            model(batch)


def closure_of(optimizer, model, batch, counts):
    def closure():
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        counts["backwards"] += 1
        return loss

    return closure


def collected(*, elsewhere: bool) -> float:
    """Seconds of a collection: here, or in another thread that is waited for."""
    start = time.monotonic()
    if elsewhere:
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
    else:
        gc.collect()
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--context", default=None, choices=["fork", "spawn", "forkserver"])
    parser.add_argument("--sample-seconds", type=float, default=0.0)
    modes = ["plain", "raises", "checkpointing", "lbfgs", "gan", "accumulate", "thread", "closure"]
    parser.add_argument("--mode", default="plain", choices=modes)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--save-to", default="")
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--evaluate-by", default="no_grad", help="a context of torch")
    parser.add_argument(
        "--monitors", action="store_true", help="two programs that sleep, one from the start, one later"
    )
    parser.add_argument("--collect-every", type=int, default=0)
    parser.add_argument("--collect-elsewhere", action="store_true")
    parser.add_argument("--log-to", default="", help="a line of one to two thousand bytes to it in each step")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="computed in each step beside")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    other = torch.nn.Linear(64, 1)
    optimizer = (
        torch.optim.LBFGS(model.parameters(), max_iter=4)
        if args.mode == "lbfgs"
        else torch.optim.Adam(model.parameters())
    )
    second = torch.optim.SGD(other.parameters(), lr=0.01)
    counts = {"steps": 0, "fetches": 0, "backwards": 0, "raised": 0, "saves": 0, "collecting_seconds": 0.0}
    if args.collect_every:
        gc.disable()  # only what is counted collects
    heap = [[number] for number in range(200_000)] if args.collect_every else []
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    loader = DataLoader(
        Samples(args.steps * 8, args.sample_seconds),
        batch_size=8,
        num_workers=args.workers,
        multiprocessing_context=args.context if args.workers else None,
    )
    begun = time.monotonic()
    monitors, beside = Monitors(args.monitors), Beside(args, counts)
    monitors.start()

    def loop() -> None:
        no_grad_seconds = 0.0
        for number, batch in enumerate(loader):
            counts["fetches"] += 1
            monitors.at(number)
            if args.mode in ("lbfgs", "closure"):
                beside.do(number, model, batch)
                optimizer.step(closure_of(optimizer, model, batch, counts))
                counts["steps"] += 1
                continue
            optimizer.zero_grad()
            hidden = (
                checkpoint(model, batch.requires_grad_(), use_reentrant=True)
                if args.mode == "checkpointing"
                else model(batch)
            )
            loss = hidden.square().mean()
            if args.mode == "raises" and number % 3 == 0:
                try:
                    Raises.apply(loss).backward()
                except RuntimeError:
                    counts["raised"] += 1
                    counts["backwards"] += 1
                    loss = model(batch).square().mean()
            beside.do(number, model, batch)
            loss.backward()
            counts["backwards"] += 1
            if args.mode == "accumulate" and number % 4 != 3:
                continue
            optimizer.step()
            counts["steps"] += 1
            if args.mode == "gan":
                second.zero_grad()
                other(batch).square().mean().backward()
                second.step()
                counts["backwards"] += 1
                counts["steps"] += 1
            if args.save_every and number % args.save_every == args.save_every - 1:
                torch.save({"model": model.state_dict(), "bulk": torch.zeros(1 << 20)}, args.save_to)
                counts["saves"] += 1
            if args.evaluate_every and number % args.evaluate_every == 0:
                with getattr(torch, args.evaluate_by)():
                    start = time.monotonic()
                    while time.monotonic() - start < 0.05:
                        with getattr(torch, args.evaluate_by)():
                            model(batch)
                    no_grad_seconds += time.monotonic() - start
            if args.collect_every and number % args.collect_every == 0:
                counts["collecting_seconds"] += collected(elsewhere=args.collect_elsewhere)
        counts["no_grad_seconds"] = no_grad_seconds
        counts["heap"] = len(heap)

    if args.mode == "thread":
        thread = threading.Thread(target=loop)
        thread.start()
        thread.join()
    else:
        loop()
    wall = time.monotonic() - begun
    monitors.end()
    print(json.dumps({"counts": counts, "begun": begun, "wall": wall}), flush=True)


if __name__ == "__main__":
    main()
