"""The training's own clock in a loop that somebody else wrote: hooks of torch and of the framework change neither.

An iteration lasts from the end of one optimiser's step to the end of the next.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "stalls" / "trainings"))

import torch
from models import perceptron
from planted import begin
from samples import FEATURES, Samples
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import Dataset, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter
from truth_clock import now

Plan = dict[str, Any]


class Job:
    """What a training needs of its plan: its truth, its clock, and the place where its faults are carried out."""

    def __init__(self) -> None:
        self.plan, self.truth, self._faults = begin()
        self.device: str = self.plan["device"]
        self.steps = 0
        self._mark, self._stepping, self._fetch, self._aside = now(), 0, 0, 0
        self._held = threading.Lock()
        self._end = self.plan.get("end")
        atexit.register(lambda: self.truth.count(optimizer_steps=self.steps))  # before the truth writes itself
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)
        fetch = _BaseDataLoaderIter.__next__
        _BaseDataLoaderIter.__next__ = lambda loader: self.fetched(fetch, loader)  # type: ignore[method-assign]
        os.chdir(self.plan["scratch"])

    def samples(self) -> Samples:
        """As many as the training takes steps, in their order."""
        return Samples(self.plan, self.truth.path, self.plan["steps"])

    def held_out(self) -> Dataset[Any]:
        """What an evaluation goes through: ``eval_batches`` of the training's size."""
        samples = self.plan["eval_batches"] * self.plan["batch"]
        return TensorDataset(torch.randn(samples, FEATURES), torch.zeros(samples, dtype=torch.int64))

    def fetched(self, fetch: Callable[..., Any], *args: Any) -> Any:
        """What ``fetch`` returns; its time belongs to the iteration's wait for data."""
        start = now()
        try:
            return fetch(*args)
        finally:
            if not self._aside:
                self._fetch += now() - start

    def _before(self, *_: Any) -> None:
        self.steps += 1
        self._stepping = now()

    def _after(self, *_: Any) -> None:
        self.iterated()

    def iterated(self) -> None:
        """An iteration ends here."""
        end = now()
        self.truth.iteration(self.steps - 1, self._mark, self._stepping, end, self._fetch)
        self._mark, self._fetch = end, 0

    def counted(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """``step``, each call of which begins the step of an optimiser that is not torch's."""

        @functools.wraps(step)
        def begun(*args: Any, **kwargs: Any) -> Any:
            self._before()
            return step(*args, **kwargs)

        return begun

    def faults(self, model: nn.Module) -> None:
        """What the plan has for the step that was just taken. A framework's callback asks for it."""
        step = self.steps - 1
        for fault in self.plan.get("locks", []):
            size = fault["at"].get(str(step))
            if size is not None:
                self._locked(fault, step, size)
        if self._end is not None and step == self._end["step"]:
            self._ended(self._end["how"])
        self._faults.at("after", step, model)

    def _locked(self, fault: dict[str, Any], step: int, seconds: float) -> None:
        """A thread keeps a lock while it sleeps, and the training wants it."""
        taken = threading.Event()

        def keep() -> None:
            with self._held:
                taken.set()
                time.sleep(seconds)

        threading.Thread(target=keep).start()
        taken.wait()
        begun = now()
        with self._held:
            self.truth.planted(fault["id"], fault["cause"], begun, now(), how="lock", step=step)

    def _ended(self, how: str) -> None:
        """The run ends by an exception of its own, or says that somebody outside may end it now."""
        self.truth.phase("ending", now(), now())
        if how == "exception":
            raise RuntimeError("the loss is not finite")
        Path("end").touch()

    def clocked(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The framework's own ``function``, with its time in the truth as the cause or phase ``name``."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._aside:
                return function(*args, **kwargs)
            self._aside += 1
            start = now()
            try:
                return function(*args, **kwargs)
            finally:
                self._aside -= 1
                if name == "evaluation":
                    self.truth.phase(name, start, now())
                else:
                    self.truth.planted(-1, name, start, now(), how=function.__qualname__, step=self.steps - 1)

        return timed


class Net(nn.Module):
    """A classifier with a buffer of ``payload`` bytes, for the framework's own saves."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.net = perceptron(plan["width"])
        self.register_buffer("table", torch.ones(plan.get("payload", 4) // 4))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.net(values)  # type: ignore[no-any-return]


def loss_of(model: nn.Module, values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(values), labels)
