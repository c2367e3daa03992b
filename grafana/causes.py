"""Causes as Grafana shows them: the toggles and colours that their specs ask for."""

from __future__ import annotations

from dataclasses import dataclass

from trainprobe.causes import groups
from trainprobe.causes.groups import Group
from trainprobe.causes.registry import SPECS
from trainprobe.model.cause import LOST, Cause, Kind, Phase, State

_SHADES = (0.0, 0.3, 0.6, 0.15, 0.45, 0.75)
"""Of white in a group's colour, from its first cause on: one that comes behind leaves the others' colours alone."""


@dataclass(frozen=True)
class Toggle:
    """A switch at the top of a dashboard: the regions of these causes, in one colour."""

    name: str
    colour: str
    causes: tuple[Cause, ...]

    @property
    def regex(self) -> str:
        return "|".join(self.causes)


def _stalls_of(group: Group) -> tuple[Cause, ...]:
    return tuple(cause for cause, spec in SPECS.items() if spec.group is group and Kind.STALL in spec.kinds)


TOGGLES: tuple[Toggle, ...] = tuple(Toggle(group.switch, group.colour, _stalls_of(group)) for group in groups.STALLS)
SHOWN = ("Data", "Workers", "Checkpoint", "Python", "GPU", "CPU", "Memory", "Ranks and network")
"""The switches that are seen at first. Those of the others are in the menu of the dashboard's controls."""
PHASES_COLOUR = groups.PHASES.colour
STARTS_COLOUR = "#FFFFFF"


def _lighter(colour: str, share: float) -> str:
    """The colour with this share of white in it."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02X}" for c in channels)


def _cause_colours() -> dict[str, str]:
    colours = {}
    for group in groups.STALLS:
        stalls = _stalls_of(group)
        others = (c for c in LOST if SPECS[c].group is group and c not in stalls)
        for cause, shade in zip((*stalls, *others), _SHADES):
            colours[cause] = SPECS[cause].dashboard_colour or _lighter(group.colour, shade)
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
    Phase.IDLE: "#E8E6E3",
    Phase.ATTACHING: "#CCCCDC",
    Phase.SHUTDOWN: "#5F6368",
}
