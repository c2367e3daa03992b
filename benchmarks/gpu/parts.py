"""The parts of the kit. Each runs in a process of its own, with a limit of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.gpu import cost, marks, nvml_fields, scenes
from benchmarks.gpu.caller import Caller
from benchmarks.gpu.place import Place
from benchmarks.limits.fake_nvml import Working
from benchmarks.programs import ProgramError, environment, trainprobe

Result = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """``measure`` returns figures, and in ``wrong`` what is not as it should be. ``limit``: seconds."""

    name: str
    what: str
    limit: float
    measure: Callable[[Place], Result]


def check(_: Place) -> Result:
    """``trainprobe check``: does eBPF work here."""
    done = subprocess.run(trainprobe("check", "--json"), capture_output=True, text=True, env=environment(), check=False)
    if done.returncode != 0:
        raise ProgramError(done.stderr.strip()[-2000:])
    findings = json.loads(done.stdout)
    missing = [f"{one['name']}: {one['what']}" for one in findings if one["state"] == "missing"]
    return {"findings": findings, "wrong": missing}


def nvml(place: Place) -> Result:
    """While a training works."""
    with ExitStack() as stack:
        if place.paper:
            _still(place)
            return nvml_fields.measure()
        caller = stack.enter_context(Caller(place, work=0.03))
        caller.do("step", 10)
        caller.ask("step", 1_000)
        time.sleep(2)
        return nvml_fields.measure()


def _still(place: Place) -> None:
    """Figures on paper that stay as they are: the two that read them are to agree."""
    state = Working(place.output / "figures", 1)
    state.held_by(os.getpid())
    state._write()
    (place.output / "figures").replace(os.environ["FAKE_NVML"])


PARTS = (
    Part("check", "does eBPF work here", 60, check),
    Part("nvml", "NVML beside nvidia-smi", 60, nvml),
    Part("marks", "probes on CUDA: symbols, hits, price", 90, marks.measure),
    *(
        Part(scene.name, f"a training: {scene.name}", scene.limit, partial(scenes.measure, scene=scene))
        for scene in scenes.SCENES
    ),
    Part("cost", "step time with and without trainprobe", 100, cost.measure),
)
