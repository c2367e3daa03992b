"""What watching costs in instructions, which are counted exactly: `python -m benchmarks.instructions`."""
