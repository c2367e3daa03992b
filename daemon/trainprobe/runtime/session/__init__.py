"""One session of `run` or `attach`: the caller's half, its child command and the root half."""
