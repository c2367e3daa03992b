"""The configuration files of the verbs."""

from __future__ import annotations

from pathlib import Path

from trainprobe.config.schema import DaemonConfig

USUAL = Path("/etc/trainprobe/trainprobe.yaml")


def of_daemon(path: Path | None) -> DaemonConfig:
    """The file that was named must be there, the usual one need not be. Raises ConfigError."""
    if path is None and not USUAL.exists():
        return DaemonConfig()
    return config_of(path or USUAL)


def config_of(path: Path | None) -> DaemonConfig:
    """What the file says, which must be there; the defaults without one. Raises ConfigError with all errors."""
    if path is None:
        return DaemonConfig()
    from trainprobe.config.load import load  # YAML is loaded only where there is some

    return load(DaemonConfig, path)
