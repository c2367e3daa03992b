"""JAX: flax's linen, optax, orbax; no torch in the process."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "stalls" / "trainings"))

import jax
import numpy as np
import optax
import orbax.checkpoint
from flax import linen
from truth_clock import Truth, now

FEATURES, CLASSES = 256, 10


class Network(linen.Module):
    width: int

    @linen.compact
    def __call__(self, values: Any) -> Any:
        for _ in range(3):
            values = linen.relu(linen.Dense(self.width)(values))
        return linen.Dense(CLASSES)(values)


def busy(seconds: float) -> None:
    end, total = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for i in range(200):
            total += i * i


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", required=True)
    parser.add_argument("--truth", required=True)
    options = parser.parse_args()
    plan = json.loads(Path(options.plan).read_text())
    truth = Truth(options.truth)
    os.chdir(plan["scratch"])
    model, optimizer = Network(plan["width"]), optax.adamw(1e-4)
    rng = np.random.default_rng(plan["seed"])
    params = model.init(jax.random.key(plan["seed"]), np.zeros((1, FEATURES), np.float32))
    state = (params, optimizer.init(params))
    table = np.ones(plan.get("payload", 4) // 4, np.float32)
    checkpointer = orbax.checkpoint.PyTreeCheckpointer()

    def loss(params: Any, values: Any, labels: Any) -> Any:
        scores = model.apply(params, values)
        return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

    @jax.jit
    def update(state: Any, values: Any, labels: Any) -> tuple[Any, Any]:
        value, gradient = jax.value_and_grad(loss)(state[0], values, labels)
        updates, inner = optimizer.update(gradient, state[1], state[0])
        return (optax.apply_updates(state[0], updates), inner), value

    faults = plan.get("driver", [])
    for step in range(plan["steps"]):
        begun = now()
        values = rng.standard_normal((plan["batch"], FEATURES), dtype=np.float32)
        labels = rng.integers(0, CLASSES, plan["batch"])
        stepping = now()
        state, value = update(state, values, labels)
        value.block_until_ready()
        for fault in faults:
            size = fault["at"].get(str(step))
            if size is not None:
                start = now()
                busy(size)
                truth.planted(fault["id"], fault["cause"], start, now(), how="busy", step=step)
        if (step + 1) % plan.get("save_every", step + 2) == 0:
            start = now()
            checkpointer.save(Path(f"save-{step}").resolve(), {"params": state[0], "table": table})
            truth.planted(-1, "checkpoint", start, now(), how="orbax", step=step)
        truth.iteration(step, begun, stepping, now(), 0)


if __name__ == "__main__":
    main()
