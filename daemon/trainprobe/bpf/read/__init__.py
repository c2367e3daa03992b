"""What the programs counted: the ring, ledgers, open files, names."""
