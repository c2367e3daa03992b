"""The arithmetic behind the advice of `causes` and of `trainprobe advise`, and behind the comparison of two runs."""
