"""Python stacks of drivers and workers: frameworks, compilers, code lines."""
