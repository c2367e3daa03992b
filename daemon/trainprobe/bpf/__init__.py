"""The kernel's side: C sources in ``src``; what compiles, loads, attaches and reads them; ``probes`` is the whole."""
