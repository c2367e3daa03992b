"""Whether what `trainprobe advise` and `trainprobe compare` say comes true, on real trainings."""
