"""Everything that touches clocks, processes and files around the pure core: the loop and what it drives."""
