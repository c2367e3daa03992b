"""What the programs counted: the ring, ledgers, open files, names; and until when they are to wait with a step."""
