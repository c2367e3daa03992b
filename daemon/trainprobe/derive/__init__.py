"""Pure functions from what the kernel counted to what it means: states, steps, saves, workers."""
