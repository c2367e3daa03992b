"""Pure functions from the kernel's counts to states, steps, saves and workers."""
