"""`run` and `attach`: the caller's half, its child command and the root half."""
