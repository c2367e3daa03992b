"""Groups of causes: a switch of the dashboards with its colour, and a section of docs/causes/index.md."""

from __future__ import annotations

from trainprobe.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """The switch draws the stalls of the group's causes, each in a shade of the colour."""

    switch: str
    colour: str
    section: str


DATA = Group("Data", "#3274D9", "Data")
WORKERS = Group("Workers", "#00A3A3", "Data")
CHECKPOINT = Group("Checkpoint", "#8F3BB8", "Files")
STORAGE_HANG = Group("Storage hang", "#6B4226", "Files")
LOGGING = Group("Logging", "#B877D9", "Files")
PYTHON = Group("Python", "#E0B400", "CPU")
GPU = Group("GPU", "#37872D", "GPU and others")
CPU = Group("CPU", "#FA6400", "CPU")
MEMORY = Group("Memory", "#C4162A", "Memory and limits")
RANKS = Group("Ranks and network", "#1F60C4", "GPU and others")
SUSPENDED = Group("Suspended", "#5F6368", "CPU")
UNKNOWN = Group("Unknown", "#A0A7B4", "Not lost, or not known")
PHASES = Group("Phases", "#96D98D", "Not lost, or not known")
STALLS = (DATA, WORKERS, CHECKPOINT, STORAGE_HANG, LOGGING, PYTHON, GPU, CPU, MEMORY, RANKS, SUSPENDED, UNKNOWN)
"""Groups with a switch, in the dashboards' order: twelve at most."""
