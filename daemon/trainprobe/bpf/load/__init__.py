"""Images into the kernel: maps, programs, descriptors."""
