"""What advice of a cause is computed from, and what several causes advise alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from trainprobe.advise.facts import LEAST_GAIN
from trainprobe.advise.frameworks import Subject, is_noted, name_of, setting
from trainprobe.advise.loader import Loader
from trainprobe.advise.numbers import interval_for_share
from trainprobe.advise.queue import Ahead
from trainprobe.derive.python.frameworks import is_own
from trainprobe.derive.python.stacks import Where
from trainprobe.model.dataclass import dataclass
from trainprobe.model.message import Message, Template, template
from trainprobe.model.report import Evidence

SHARE = 0.01
"""Of a run: what something that the training could do without may cost."""
LASTING = 0.9
"""Of a run: with less of it in its steps and evaluations it is a short one."""
MOST = 0.5
"""Of what late batches cost: what making them ahead has to save to stand before the other remedy."""
THE_RUN = template("advice.the_run", "the run")
LONGER_RUN = template("advice.longer_run", "a longer run")
IN_BRACKETS = template("advice.in_brackets", " ({setting})")
FIT_MEMORY = template("advice.fit_memory", "lower batch size, workers or prefetch_factor until the run fits its memory")
FIT_ALONE = template(
    "advice.fit_alone", "lower the batch size, or what the training itself keeps in memory, until the run fits it"
)
MORE_WORKERS = template(
    "advice.more_workers",
    "{setting}={best} instead of {workers}: a batch costs a worker {each:seconds}, a step without waiting takes "
    "{own:seconds}",
)
MORE_SHARDS = template(
    "advice.more_shards",
    "divide the data set into {best} shards or more: {idle} of {started} workers got nothing to load; a batch costs a "
    "worker {each:seconds}, a step without waiting takes {own:seconds}",
)
USE_WORKERS = template(
    "data_inline.advice.use_workers",
    "{setting}={workers} in the DataLoader{noted}: the loading, {share:percent} of the run, then runs beside the step",
)

MADE_AHEAD = template(
    "advice.made_ahead",
    "{setting}={factor}: batches made ahead save {saves:percent} of what late batches cost, as their replay shows",
)
CHANGE_CODE = template("advice.change_code", "no setting helps: change the code at {where}")
LOOK_AT_CODE = template(
    "advice.look_at_code",
    "no setting helps: see what the code does there (the chain and the Python stack of its stalls)",
)
PROFILE = template(
    "advice.profile",
    "no setting helps, and no Python line of it was seen: a profiler shows more (py-spy, torch.profiler)",
)


@dataclass(frozen=True, slots=True)
class AdviceInput:
    """What was measured of a cause in one rank, as far as it was (0: not)."""

    share: float = 0.0  # of the run, lost to the cause
    repeated: float = 1.0  # of the run: without what comes once in it, as its start
    each: float = 0.0  # seconds of a stall's longest step, median, else of an ordinary one; of saves the mean, of both
    every: int | None = None  # steps between occurrences
    apart: float | None = None  # the same on average, also without a rhythm; 0: of a single save after the last step
    period: float = 0.0  # seconds between occurrences that recur by steps or by the clock
    where: Where | None = None  # the Python line
    longest: float = 0.0  # seconds of the longest stall that is mostly of it, an open one too; 0: none is
    evidence: Sequence[Evidence] = ()  # what its rule saw of the longest one, over if one is, and in ordinary steps
    seen: Sequence[Evidence] = ()  # what it saw of all of them, and in ordinary steps
    cpus: int = 0  # of the host; 0: not known
    crowded: bool = False  # the run lost time to waiting for a CPU
    steps: int = 0  # that the run has done; 0: not known
    ahead: Ahead | None = None  # how many batches made ahead cover late ones; None: none do
    writes_per_step: float = 0.0  # to logs
    fetching: bool = False  # a DataLoader is seen to fetch
    framework: str | None = None  # that runs the loop
    workers: int = 0  # live at once, at most
    loader: Loader | None = None  # what making its batches costs, as far as measured
    best_workers: int | None = None  # of a loader, that gain 1 % of the run; 0: none do; None: not measured

    @property
    def line(self) -> Message | None:
        """The Python line for people, without how often it was seen."""
        return self.where.message(counted=False) if self.where is not None else None

    @property
    def in_library(self) -> bool:
        """Whether the line is a library's, and none of the user's own functions calls it but its loop."""
        return self.where is not None and not self.where.own and not is_own(self.where.frame)

    def saw(self, what: Template) -> bool:
        """Whether the rule saw that."""
        return any(one.key == what.id for one in self.evidence)

    def part(self, what: Template, whole: Template) -> float:
        """Of the longest occurrence: the part of one evidence's seconds that another puts there."""
        spent, of = (
            sum(one.value for one in self.evidence if one.key == key.id and isinstance(one.value, (int, float)))
            for key in (what, whole)
        )
        return spent / of if of else 0.0


Advise: TypeAlias = Callable[[AdviceInput], list[Message]]


def always(*sentences: Template) -> Advise:
    """The same, whatever was measured."""
    return lambda _: [sentence() for sentence in sentences]


def fit_memory(f: AdviceInput) -> list[Message]:
    """For causes by which memory is short."""
    return [FIT_MEMORY() if f.workers else FIT_ALONE()]


def no_setting(f: AdviceInput) -> list[Message]:
    if f.where is not None:
        return [CHANGE_CODE(where=f.line)]
    return [LOOK_AT_CODE() if f.longest else PROFILE()]


def rarer(f: AdviceInput, sentence: Template, subject: Subject | None = None, wanted: float = SHARE) -> list[Message]:
    """The interval at which something that recurs by steps takes ``wanted`` of the run; ``sentence`` takes ``better``,
    ``every``, ``share`` and ``run``, and where it has a ``subject`` the framework's ``setting`` for it."""
    every, better = steps_apart(f), better_interval(f, wanted)
    if better is None:
        return []
    named = {} if subject is None else {"setting": in_brackets(f, subject, better)}
    return [sentence(better=better, every=every, share=f.share, run=in_run(f, better), **named)]


def steps_apart(f: AdviceInput) -> int | None:
    """Steps between occurrences, for people: the rhythm where there is one."""
    return f.every or (round(f.apart) if f.apart else None)


def better_interval(f: AdviceInput, wanted: float = SHARE) -> int | None:
    """Steps between occurrences, so that they take ``wanted`` of a long run; None: not known, or too little gain."""
    apart = f.apart or f.every
    if not apart:
        return None
    better = interval_for_share(apart, f.share, wanted, f.repeated)
    return better if f.share * (1 - apart / better) >= LEAST_GAIN else None


def in_run(f: AdviceInput, every: int) -> Message:
    """What an interval is for: the run as it is, or one with more steps. In a short one its start counts, too."""
    return LONGER_RUN() if 0 < f.steps < every or f.repeated < LASTING else THE_RUN()


def in_brackets(f: AdviceInput, subject: Subject, value: object) -> Message | None:
    """The framework's setting behind an advice; None: it has none for it."""
    named = setting(f.framework, subject, value, f.loader.fetches if f.loader is not None else None)
    return IN_BRACKETS(setting=named) if named is not None else None


def made_ahead(f: AdviceInput) -> list[Message]:
    """The prefetch_factor that is worth it, of a torch DataLoader."""
    name = name_of(f.framework, Subject.PREFETCH)
    if f.ahead is None or not f.fetching or name is None:
        return []
    return [MADE_AHEAD(setting=name, factor=f.ahead.factor, saves=f.ahead.saves)]


def with_made_ahead(f: AdviceInput, other: Message) -> list[Message]:
    """Batches made ahead and the ``other`` remedy for late ones: the former first where that saves most of the cost."""
    most = f.ahead is not None and f.ahead.saves >= MOST
    return [*made_ahead(f), other] if most else [other, *made_ahead(f)]


def use_workers(f: AdviceInput) -> list[Message]:
    """For a DataLoader without workers."""
    name, workers = name_of(f.framework, Subject.WORKERS), f.best_workers or 1
    noted = in_brackets(f, Subject.WORKERS, workers) if is_noted(f.framework, Subject.WORKERS) else None
    return [USE_WORKERS(setting=name, workers=workers, noted=noted, share=f.share)]


def more_workers(f: AdviceInput) -> list[Message]:
    """The number of loader workers that is worth it; nothing where that is no more than there are, or is not known. Of
    a data set that has fewer shards than workers, the number of shards."""
    load, best = f.loader, f.best_workers or 0
    if load is None or best <= load.workers:
        return []
    if idle := load.without_data:
        return [MORE_SHARDS(best=best, idle=idle, started=load.workers + idle, each=load.each, own=load.own)]
    name = name_of(f.framework, Subject.WORKERS)
    return [MORE_WORKERS(setting=name, best=best, workers=load.workers, each=load.each, own=load.own)]
