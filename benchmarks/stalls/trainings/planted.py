"""What a training's driver does wrong, by plan: shared by all styles, while the loops around it are their own."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from background import Background
from collector import Heap
from evaluation import EVALUATIONS
from hangs import HANGS, PEERS
from loggers import LOGGERS
from samples import busy, numeric
from torch import nn
from truth_clock import Truth, now, process_start_ns
from writers import WRITERS, payload

Plan = dict[str, Any]


def optimal_sequence_search(seconds: float) -> None:
    """A Python function that hogs the driver's core."""
    busy(seconds)


class DriverFaults:
    """Carries out the plan's ``driver`` faults where the loop calls ``at``.

    A fault has ``at`` (step -> size) or ``every`` (steps) with ``size``; the size is seconds, or bytes for a
    checkpoint and for a blob on stdout. ``hook`` says where in the iteration: "after" the optimiser's step (default)
    or "before" the forward pass.
    """

    def __init__(self, plan: Plan, truth: Truth) -> None:
        self._pause: float = plan.get("pause", 0.0)
        self._faults: list[dict[str, Any]] = plan.get("driver", [])
        self._truth = truth
        self._last: str | None = None
        largest = max(
            (size for f in self._faults if f["cause"] == "checkpoint" for size in f["at"].values()), default=0
        )
        self._payload = payload(int(largest), 64) if largest else []
        self._background = Background(plan)
        heap = next((f["how"] for f in self._faults if f["cause"] == "gc_pause"), None)
        self._heap = Heap(heap) if heap is not None else None

    def at(self, hook: str, step: int, model: nn.Module) -> None:
        for fault in self._faults:
            if fault.get("hook", "after") != hook:
                continue
            if "every" in fault:
                size = fault["size"] if step % fault["every"] == fault["every"] - 1 else None
            else:
                size = fault["at"].get(str(step))
            if size is not None:
                self._carry_out(fault, step, size, model)
        if hook == "after":
            self._background.step(step, model)
            time.sleep(self._pause)  # as one does whose work is done elsewhere, in every step alike

    def _carry_out(self, fault: dict[str, Any], step: int, size: float, model: nn.Module) -> None:
        cause, how = fault["cause"], fault["how"]
        begin = now()
        if cause == "checkpoint" and how == "in_place":
            self._in_place(fault, step, int(size), model)
        elif cause == "checkpoint":
            self._checkpoint(fault, step, int(size), model)
        elif cause in CALLS:
            CALLS[cause][how](fault["directory"], size)
            self._truth.planted(fault["id"], cause, begin, now(), how=how, step=step)
        elif cause == "evaluation":
            EVALUATIONS[how](model, size)
            self._truth.phase("evaluation", begin, now())
        elif cause == "gc_pause" and self._heap is not None:
            self._heap.collect(size)
            self._truth.planted(fault["id"], cause, begin, now(), how=how, step=step)
        elif cause == "drift":
            busy(size * step)
            self._truth.planted(fault["id"], cause, begin, now(), how=how, step=step)
        elif cause == "cpu_bound":
            optimal_sequence_search(size)
            self._truth.planted(fault["id"], cause, begin, now(), how=how, step=step)
        else:
            raise ValueError(f"no such fault: {cause}")

    def _checkpoint(self, fault: dict[str, Any], step: int, size: int, model: nn.Module) -> None:
        piece = self._payload[0].numel() * 4
        state = {"model": model.state_dict(), "extra": self._payload[: max(round(size / piece), 1)]}
        begin = now()
        path = WRITERS[fault["how"]](state, os.path.join(fault["directory"], f"step-{step}.pt"))
        saved = now()
        written = os.stat(path).st_size
        if self._last is not None and self._last != path:
            os.unlink(self._last)
        self._last = path
        self._truth.planted(
            fault["id"], "checkpoint", begin, now(), how=fault["how"], step=step, saved=saved, bytes=written, path=path
        )

    def _in_place(self, fault: dict[str, Any], step: int, size: int, model: nn.Module) -> None:
        """The one checkpoint there is, written over while nothing else is complete."""
        piece = self._payload[0].numel() * 4
        begin = now()
        path = os.path.join(fault["directory"], "last.pt")
        torch.save({"model": model.state_dict(), "extra": self._payload[: max(round(size / piece), 1)]}, path)
        self._truth.planted(fault["id"], "checkpoint", begin, now(), how="in_place", step=step, path=path)

    def close(self) -> None:
        self._background.close()


def begin() -> tuple[Plan, Truth, DriverFaults]:
    """Reads ``--plan``, opens ``--truth``, takes one core, and is slow to start where the plan says so."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", required=True)
    parser.add_argument("--truth", required=True)
    options = parser.parse_args()
    with open(options.plan, encoding="utf-8") as file:
        plan: Plan = json.load(file)
    truth = Truth(options.truth)
    torch.set_num_threads(1)
    torch.manual_seed(plan["seed"])
    faults = DriverFaults(plan, truth)
    slow = plan.get("startup")
    if slow:
        STARTS[slow["how"]](slow["seconds"])
        truth.phase("startup", process_start_ns(), now())
    return plan, truth, faults


CALLS: dict[str, dict[str, Callable[[str, float], None]]] = {
    "logging": LOGGERS,
    "storage_hang": HANGS,
    "network": PEERS,
}
STARTS: dict[str, Callable[[float], None]] = {"python": busy, "numeric": numeric, "wait": time.sleep}
