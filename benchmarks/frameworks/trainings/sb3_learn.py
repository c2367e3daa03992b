"""stable-baselines3: PPO's own rollouts and updates, its CheckpointCallback."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from clock import Job
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback

ROLLOUT, BATCH, EPOCHS = 512, 64, 4
UPDATES = ROLLOUT // BATCH * EPOCHS


class Faults(BaseCallback):
    """Asked in each step of a rollout: the plan's faults come at the first one after an update."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job, self.last = job, 0

    def _on_step(self) -> bool:
        if self.job.steps != self.last:
            self.last = self.job.steps
            self.job.faults(self.model.policy)
        return True


def main() -> None:
    job = Job()
    plan = job.plan
    model = PPO(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        n_steps=ROLLOUT,
        batch_size=BATCH,
        n_epochs=EPOCHS,
        seed=plan["seed"],
        device="cpu",
        policy_kwargs={"net_arch": [plan["width"], plan["width"]]},
    )
    model.policy.register_buffer("table", torch.ones(plan.get("payload", 4) // 4))
    PPO.save = job.clocked(PPO.save, "checkpoint")
    callbacks: list[Any] = [Faults(job)]
    if plan.get("save_every"):
        callbacks.append(CheckpointCallback(plan["save_every"] * ROLLOUT, "saves"))
    model.learn(plan["steps"] // UPDATES * ROLLOUT, callbacks)


if __name__ == "__main__":
    main()
