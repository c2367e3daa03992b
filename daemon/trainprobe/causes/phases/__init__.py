"""Phases: time that is not lost. One per file."""
