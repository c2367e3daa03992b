"""What `trainprobe top` shows: figures over time, the list of runs, one run in detail, and the terminal itself."""
