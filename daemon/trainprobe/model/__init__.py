"""Plain data that all packages share: no clock, no file, no socket, no third-party import."""
