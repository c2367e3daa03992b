"""Phases that have messages or a rule of their own: time that is not lost. One per file."""
