"""A job's goodput: the account over all of its attempts and the gaps between them."""

from __future__ import annotations

from dataclasses import field

from trainprobe.model.dataclass import dataclass
from trainprobe.model.text import StrEnum


class Badput(StrEnum):
    """Where the wall time of a job goes that is not productive. Label values of metrics and keys of reports: public."""

    STARTUP = "startup"  # the launcher, imports, compilation up to the baseline
    TRAINING_PREP = "training_prep"  # data set, workers, the model, up to the first step
    DATA_LOADING = "data_loading"
    CHECKPOINT_SAVE = "checkpoint_save"
    CHECKPOINT_RESTORE = "checkpoint_restore"
    WASTED_PROGRESS = "wasted_progress"  # productive time that the checkpoint of the next attempt does not hold
    RECOVERY = "recovery"  # from an attempt that did not finish to the next one's launch
    EVALUATION = "evaluation"
    RECOMPILATION = "recompilation"
    OTHER = "other"


class Outcome(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"  # by a person, by SIGTERM or by the training itself; or nobody saw how


@dataclass(slots=True)
class Progress:
    """What the next attempt's account needs. Seconds of productive time, over all attempts."""

    seconds: float = 0.0  # that the training's present state holds: less what resumptions took back
    safe_seconds: float = 0.0  # of these, that the last complete checkpoint holds
    wasted_seconds: float = 0.0  # that resumptions took back
    known: bool = True  # whether each resumed checkpoint is known
    outcome: Outcome = Outcome.RUNNING
    until: float = 0.0  # end of the account, UNIX seconds
    saved: dict[str, float] = field(default_factory=dict)  # what the latest checkpoints hold, by ``key`` of the path


@dataclass(slots=True)
class Goodput:
    """``productive_seconds`` and ``badput`` add up to the job's wall time: its attempts and the gaps between them."""

    productive_seconds: float = 0.0
    badput: dict[str, float] = field(default_factory=dict)
    wasted_progress_seconds: float | None = None  # None: it is not known which checkpoint was resumed
    attempt: int = 1
    between_attempts_seconds: float | None = None  # None: the first attempt
    time_to_first_step_seconds: float | None = None  # of this attempt, from its launch; None: not seen
    restore_seconds: float | None = None  # of this attempt
    earlier: dict[str, float] = field(default_factory=dict)  # the part of ``badput`` that was told before this attempt
    progress: Progress = field(default_factory=Progress)

    @property
    def wall_seconds(self) -> float:
        """Of all attempts and the gaps between them."""
        return self.productive_seconds + sum(self.badput.values())

    @property
    def ratio(self) -> float | None:
        """Productive part of the wall time; None before there is any."""
        return self.productive_seconds / self.wall_seconds if self.wall_seconds > 0 else None
