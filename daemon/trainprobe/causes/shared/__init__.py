"""Rules, not helpers: they claim for several causes, or return time to the training: no cause is theirs alone."""
