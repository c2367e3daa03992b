"""One rank, a training loop: what was seen of it, in a few states; what judges its steps; a snapshot for reports."""
