"""Advice with this run's numbers: arithmetic, no generalities."""
