"""Dumb data that every other package speaks: no clock, no file, no socket, no third-party import."""
