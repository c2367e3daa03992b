"""One run of a training (not the verb): its ranks, what is asked of the host for them, and its report."""
