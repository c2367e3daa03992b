"""The step clock, what an ordinary step is, and what one late step was made of."""
