"""The configuration files of both programs: what may stand in them, what was wrong with one, and reading it."""
