"""From counts and samples to states, steps, saves and workers: functions, and accumulators that do no I/O."""
