"""The small networks that are trained. Width and batch set the time of a step."""

from __future__ import annotations

from samples import CLASSES, FEATURES
from torch import nn


def perceptron(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, width), nn.ReLU(),
        nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, CLASSES),
    )  # fmt: skip
