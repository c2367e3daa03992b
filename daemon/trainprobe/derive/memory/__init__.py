"""Shared memory, swap and memory of the GPU."""
