"""What only an NVIDIA GPU can show, from a machine that has one for some minutes: ``python -m benchmarks.gpu``."""
