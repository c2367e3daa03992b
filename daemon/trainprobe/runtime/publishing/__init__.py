"""What other processes read: reports, recordings, the run directory."""
