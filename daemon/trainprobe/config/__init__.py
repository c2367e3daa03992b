"""The configuration files: what may stand in them, what was wrong with one, and reading it."""
