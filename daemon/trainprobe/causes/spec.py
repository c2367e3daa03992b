"""What a cause is. Each has one file, which declares its ``SPEC``; everything else about causes is derived from those.

``registry`` collects the specs. ``make generated`` writes what is committed: the enumeration in ``model.cause``, the
dashboards, the index in docs/causes, the table in docs/grafana.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from trainprobe.causes.advice import Advise, always
from trainprobe.causes.base import Rule
from trainprobe.causes.groups import Group
from trainprobe.causes.policy import Policy
from trainprobe.causes.situation import LimitRule
from trainprobe.model.cause import Cause, Kind
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, Template, template

SHORT = 5.0
"""Seconds: a stall that ended by itself before was slow, it did not hang."""


@dataclass(frozen=True, slots=True)
class OrderedRule:
    """A rule and its place among the others: the lower number claims first. None: it takes no part there."""

    claim: Rule
    stall: int | None = None  # among the rules for late steps
    ordinary: int | None = None  # among the rules for ordinary steps (bottlenecks)


@dataclass(frozen=True, slots=True)
class OrderedCheck:
    """A rule about limits, and its place: the lower number reports first."""

    check: LimitRule
    place: int


no_advice = always()  # nothing measured supports any
LINE_AND = template("verdict.line_and", "{line}{what}")


@dataclass(frozen=True, slots=True)
class CauseSpec:
    """One cause. Its key is public, and the name of its file and of its page in docs/causes."""

    key: str
    kinds: frozenset[Kind]
    title: str  # a few words, for people: the subject of a sentence
    colours: tuple[str, str]  # on a light ground, on a dark one
    group: Group
    rules: Sequence[OrderedRule] = ()
    checks: Sequence[OrderedCheck] = ()
    advice: Advise = no_advice  # what to change, the most useful first
    short: str = ""  # its title where each of its stalls ended by itself within ``SHORT``; "": the same
    in_line: Template | None = None
    """The summary of a stall where most samples of all its stalls share a Python line: of ``seconds`` and ``where``; or
    ``LINE_AND``: only the headline has the line, before the rule's own sentence."""
    dashboard_colour: str = ""  # "": a shade of its group's
    minor_share: Callable[[Policy], float] = attrgetter("minor_share")
    """Of a stall: a smaller claim goes to the stall's main cause."""
    is_input: bool = False  # its seconds are spent on getting data
    makes_batches: bool = False  # workers make the batch in its stalls, too slowly
    worker_stack: bool = False  # the Python stack that explains it is a worker's
    thread_state_only: bool = False
    """Its only evidence is what the driver's thread did: an interpreter that exits, or a program that waits for work,
    looks the same."""
    computes: bool = False
    """The thread computes in it, or waits for a CPU: an interpreter that finalizes does, and is not charged with it."""
    of_others: bool = False
    """Other programs make it: a cause of the training itself that costs half as much is the verdict before it."""
    gpu_works: bool = False  # the GPU is busy, or its own fault, in its stalls: they give no idle time

    def __post_init__(self) -> None:
        template(f"cause.{self.key}", self.title)
        if self.short:
            template(f"cause.{self.key}.short", self.short)

    def named(self, longest: float = SHORT) -> Message:
        """What it is called in a sentence; ``longest``: seconds of its longest stall, one that is open lasts on."""
        return Message(f"cause.{self.key}.short" if self.short and longest < SHORT else f"cause.{self.key}")

    @property
    def cause(self) -> Cause:
        return Cause(self.key)

    @property
    def page(self) -> str:
        """Its documentation, relative to docs/."""
        return f"causes/{self.key}.md"
