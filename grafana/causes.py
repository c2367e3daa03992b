"""Causes as Grafana shows them: at most twelve toggles, and a colour for each cause."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.model.cause import KINDS, LOST, Cause, Kind, Phase, State

STALL_CAUSES: tuple[Cause, ...] = tuple(cause for cause, kinds in KINDS.items() if Kind.STALL in kinds)
MAX_TOGGLES = 12


@dataclass(frozen=True)
class Toggle:
    """A switch at the top of a dashboard: the regions of these causes, in one colour."""

    name: str
    colour: str
    causes: tuple[Cause, ...]

    @property
    def regex(self) -> str:
        return "|".join(self.causes)


TOGGLES: tuple[Toggle, ...] = (
    Toggle("Data", "#3274D9", (Cause.DATA_CPU, Cause.DATA_STORAGE, Cause.DATA_INLINE)),
    Toggle("Workers", "#00A3A3", (Cause.WORKER_STARTUP, Cause.WORKER_HANG, Cause.DEADLOCK)),
    Toggle("Checkpoint", "#8F3BB8", (Cause.CHECKPOINT,)),
    Toggle("Storage hang", "#6B4226", (Cause.STORAGE_HANG,)),
    Toggle("Logging", "#B877D9", (Cause.LOGGING,)),
    Toggle("Python", "#E0B400", (Cause.CPU_BOUND, Cause.GC_PAUSE)),
    Toggle("GPU", "#37872D", (Cause.GPU_MEMORY, Cause.GPU_THROTTLE)),
    Toggle("CPU", "#FA6400", (Cause.CPU_CONTENTION, Cause.CPU_THROTTLED)),
    Toggle("Memory", "#C4162A", (Cause.SWAP, Cause.MEMORY_PRESSURE)),
    Toggle("Ranks and network", "#1F60C4", (Cause.COLLECTIVE_WAIT, Cause.NETWORK)),
    Toggle("Suspended", "#5F6368", (Cause.SUSPENDED,)),
    Toggle("Unknown", "#A0A7B4", (Cause.UNKNOWN,)),
)
PHASES_COLOUR = "#96D98D"
STARTS_COLOUR = "#FFFFFF"

_ONLY_BOTTLENECKS = {Cause.FAKE_BATCHING: "#8AB8FF", Cause.DRIFT: "#FFCB7D"}


def _lighter(colour: str, share: float) -> str:
    """The colour with this share of white in it."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02X}" for c in channels)


def _cause_colours() -> dict[str, str]:
    shades = {
        cause: _lighter(toggle.colour, 0.3 * index) for toggle in TOGGLES for index, cause in enumerate(toggle.causes)
    }
    colours = shades | _ONLY_BOTTLENECKS
    return {cause: colours[cause] for cause in LOST}


CAUSE_COLOURS: dict[str, str] = _cause_colours()
"""A colour for each cause that may own lost time: its toggle's, or a shade of it."""

STATE_COLOURS: dict[str, str] = {
    State.COMPUTE: "#56A64B",
    State.GPU_WAIT: "#96D98D",
    State.DATA_WAIT: CAUSE_COLOURS[Cause.DATA_CPU],
    State.DATA_INLINE: CAUSE_COLOURS[Cause.DATA_INLINE],
    State.CHECKPOINT: CAUSE_COLOURS[Cause.CHECKPOINT],
    State.LOGGING: CAUSE_COLOURS[Cause.LOGGING],
    State.MEMORY: CAUSE_COLOURS[Cause.SWAP],
    State.FAULT_IO: CAUSE_COLOURS[Cause.DATA_STORAGE],
    State.COLLECTIVE: CAUSE_COLOURS[Cause.COLLECTIVE_WAIT],
    State.NETWORK: CAUSE_COLOURS[Cause.NETWORK],
    State.RUNQUEUE: CAUSE_COLOURS[Cause.CPU_CONTENTION],
    State.STOPPED: CAUSE_COLOURS[Cause.SUSPENDED],
    State.LOCK: CAUSE_COLOURS[Cause.DEADLOCK],
    State.SLEEP: "#CCCCDC",
    State.OTHER: CAUSE_COLOURS[Cause.UNKNOWN],
}
PHASE_COLOURS: dict[str, str] = {
    Phase.TRAIN: "#56A64B",
    Phase.STARTUP: PHASES_COLOUR,
    Phase.COMPILE: "#73BF69",
    Phase.EVALUATION: "#C8F2C2",
    Phase.ATTACHING: "#CCCCDC",
    Phase.SHUTDOWN: "#5F6368",
}
