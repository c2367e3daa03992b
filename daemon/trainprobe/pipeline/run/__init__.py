"""One launch of a training: its ranks, what is asked of the host for them, and its report."""
