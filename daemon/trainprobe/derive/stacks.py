"""What several Python stacks have in common: the function that holds a training up, and how often it was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

SHARE = 0.8
"""A function is the one that was sought when it is on so many of the stacks."""


@dataclass(frozen=True, slots=True)
class Where:
    """A function and its most frequent line; ``hits`` of ``samples`` stacks have it."""

    frame: str  # "name (file:line)"
    hits: int
    samples: int

    def told(self) -> str:
        """For people."""
        return f"{self.frame}, seen there in {self.hits} of {self.samples} looks" if self.samples > 1 else self.frame


def common(stacks: Sequence[Sequence[str]]) -> Where | None:
    """The innermost function that most of the stacks share; None without stacks. Outermost frames come first.

    With one stack it is the innermost frame. With several, what differs from sample to sample below a function is its
    own doing.
    """
    kept = [stack for stack in stacks if stack]
    if not kept:
        return None
    here, depth, best = kept, 0, kept[0][0]
    while True:
        at = Counter(_function(stack[depth]) for stack in here if len(stack) > depth)
        if not at:
            break
        name, hits = at.most_common(1)[0]
        if hits < SHARE * len(kept):
            break
        here = [stack for stack in here if len(stack) > depth and _function(stack[depth]) == name]
        best = Counter(stack[depth] for stack in here).most_common(1)[0][0]
        depth += 1
    return Where(best, len(here), len(kept))


def _function(frame: str) -> str:
    """A frame without its line: "name (file"."""
    return frame.rpartition(":")[0]
