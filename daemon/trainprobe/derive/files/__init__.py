"""Written and read files: checkpoints, logs, slow reads."""
