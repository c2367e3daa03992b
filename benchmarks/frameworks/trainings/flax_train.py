"""JAX: flax's linen, optax, orbax; no torch in the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bare import CLASSES, FEATURES, Job
import jax
import numpy as np
import optax
import orbax.checkpoint
from flax import linen


class Network(linen.Module):
    width: int

    @linen.compact
    def __call__(self, values: Any) -> Any:
        for _ in range(3):
            values = linen.relu(linen.Dense(self.width)(values))
        return linen.Dense(CLASSES)(values)


def main() -> None:
    job = Job()
    plan = job.plan
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

    for _ in range(plan["steps"]):
        values = rng.standard_normal((plan["batch"], FEATURES), dtype=np.float32)
        labels = rng.integers(0, CLASSES, plan["batch"])
        state, value = update(state, values, labels)
        value.block_until_ready()
        if job.saves():
            with job.planted("checkpoint", "orbax"):
                checkpointer.save(Path(f"save-{job.steps}").resolve(), {"params": state[0], "table": table})
        job.step()


if __name__ == "__main__":
    main()
