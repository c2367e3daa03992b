"""The configuration file of a verb."""

from __future__ import annotations

from pathlib import Path

from trainprobe.config.schema import DaemonConfig


def config_of(path: Path | None) -> DaemonConfig:
    """What the file says, which must be there; the defaults without one. Raises ConfigError with all errors."""
    if path is None:
        return DaemonConfig()
    from trainprobe.config.load import load  # YAML is loaded only where there is some

    return load(DaemonConfig, path)
