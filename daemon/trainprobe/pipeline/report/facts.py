"""What a rank lost to each cause, and what is advised against it."""

from __future__ import annotations

from trainprobe.causes.advice import AdviceInput
from trainprobe.causes.registry import SPECS
from trainprobe.model.cause import Cause
from trainprobe.model.message import Message


class Facts(dict[Cause, AdviceInput]):
    """What was measured of each cause. Its stalls, the verdict and the list of changes give the same advice: it is made
    once, when it is asked for first, and the facts are complete by then."""

    def __init__(self) -> None:
        super().__init__()
        self.stalls: dict[Cause, float] = {}
        """Seconds of one, median; of a save, on average."""
        self._advice: dict[Cause, list[Message]] = {}

    def of(self, cause: Cause) -> AdviceInput:
        return self.get(cause) or AdviceInput()

    def advice(self, cause: Cause) -> list[Message]:
        """It is not to be changed."""
        if cause not in self._advice:
            self._advice[cause] = SPECS[cause].advice(self.of(cause))
        return self._advice[cause]
