"""Causes that are found over a run, not in one window: what its steps, its saves and its workers went through."""
