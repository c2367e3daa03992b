"""One cause per file. A rule reads one window and claims the part of its excess for which it has evidence."""
