"""Two ways to evaluate in the middle of a run, each for about ``seconds``."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from samples import FEATURES
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def with_loader(model: nn.Module, seconds: float) -> None:
    """A validation DataLoader under ``no_grad``, as often as fits."""
    held_out = TensorDataset(torch.randn(2048, FEATURES), torch.zeros(2048, dtype=torch.int64))
    end = time.monotonic() + seconds
    right = 0
    model.eval()
    with torch.no_grad():
        while time.monotonic() < end:
            for values, labels in DataLoader(held_out, batch_size=128):
                right += int((model(values).argmax(1) == labels).sum())
                if time.monotonic() >= end:
                    break
    model.train()


def by_hand(model: nn.Module, seconds: float) -> None:
    """Held-out tensors in memory, sliced by hand, under ``no_grad``."""
    held_out = torch.randn(2048, FEATURES)
    end = time.monotonic() + seconds
    total = 0.0
    model.eval()
    with torch.no_grad():
        while time.monotonic() < end:
            for start in range(0, len(held_out), 128):
                total += float(model(held_out[start : start + 128]).sum())
    model.train()


EVALUATIONS: dict[str, Callable[[nn.Module, float], None]] = {"with_loader": with_loader, "by_hand": by_hand}
