"""The clock of a training without torch: its truth, and its faults where the plan has them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "stalls" / "trainings"))

from truth_clock import Truth, now

FEATURES, CLASSES = 256, 10


def busy(seconds: float) -> None:
    """Pure Python work."""
    end, total = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for i in range(200):
            total += i * i


class Job:
    """An iteration lasts from one ``step`` to the next."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--plan", required=True)
        parser.add_argument("--truth", required=True)
        options = parser.parse_args()
        self.plan: dict[str, Any] = json.loads(Path(options.plan).read_text())
        self.truth, self._begin = Truth(options.truth), now()
        self.steps = 0
        os.chdir(self.plan["scratch"])

    def step(self) -> None:
        """A step has been taken: the iteration ends with what is planted after it."""
        stepping = now()
        for fault in self.plan.get("driver", []):
            size = fault["at"].get(str(self.steps))
            if size is not None:
                with self.planted(fault["cause"], "busy", fault["id"]):
                    busy(size)
        self.truth.iteration(self.steps, self._begin, stepping, now(), 0)
        self._begin = now()
        self.steps += 1

    def saves(self) -> bool:
        """Whether the plan has a save after the step that was just taken."""
        every = self.plan.get("save_every")
        return bool(every) and self.steps > self.plan["quiet"] and self.steps % every == 0

    @contextmanager
    def planted(self, cause: str, how: str, fault: int = -1) -> Iterator[None]:
        """What is done here is in the truth as ``cause``."""
        start = now()
        yield
        self.truth.planted(fault, cause, start, now(), how=how, step=self.steps)
