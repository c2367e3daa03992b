"""One rank: what was seen of it, in a handful of states; functions that judge its steps; a snapshot for reports."""
