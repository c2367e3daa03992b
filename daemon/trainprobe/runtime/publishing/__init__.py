"""What other processes read: reports, recordings (and their replay), the run directory."""
