"""The deadline of a driver's current step: when it becomes a stall unless the driver has begun the next step."""

from __future__ import annotations

from dataclasses import replace

from trainprobe.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DriverProgress:
    """A driver's progress, read from its ledger in the kernel. Counts as in its rows."""

    steps: int
    backwards: int
    step_ns: int  # its last optimiser step or outermost backward began


@dataclass(frozen=True, slots=True)
class Armed:
    """A step as the last row reported it; CLOCK_MONOTONIC ns."""

    tid: int
    steps: int  # at its begin
    backwards: int
    began_ns: int
    limit_ns: int  # from here on it is a stall
    early: bool = False  # bursts like those before are over soon: look as soon as it is late
    compared: bool = False  # with the same step of other ranks

    def after(self, progress: DriverProgress) -> Armed | None:
        """The alarm of a later step that the driver has begun meanwhile; None: it is in the same one.

        A row is emitted before its own mark is counted. Where a step has several optimiser steps a later one of them is
        taken for the next step's, and the alarm comes late; rows, which the next tick brings, are exact.
        """
        counted = progress.steps - self.steps if progress.steps else progress.backwards - self.backwards
        if counted < 2 or progress.step_ns <= self.began_ns:
            return None
        later = progress.step_ns - self.began_ns
        return replace(
            self,
            steps=progress.steps - 1 if progress.steps else self.steps,
            backwards=progress.backwards - 1,
            began_ns=self.began_ns + later,
            limit_ns=self.limit_ns + later,
        )
