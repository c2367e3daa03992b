"""What one launch is called on its host: a run may have several there, its attempts, which have one name."""

from __future__ import annotations


def launch_key(run: str, attempt: int) -> str:
    """``<base>-<8 hex>`` for the first attempt, ``<base>-<8 hex>.N`` for attempt N."""
    return run if attempt < 2 else f"{run}.{attempt}"


def run_of_key(key: str, attempt: int) -> str:
    """The run's name, which is the same on all hosts."""
    return key if attempt < 2 else key.removesuffix(f".{attempt}")
