"""Python stacks: frameworks, compilers, code lines."""
