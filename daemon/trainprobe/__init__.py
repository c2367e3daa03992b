"""trainprobe: says which cause owns the time that a training loses, from the kernel's own accounting."""

__version__ = "0.1.0"
