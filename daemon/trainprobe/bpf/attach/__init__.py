"""Where programs are attached: system calls, marks of libtorch and CUDA; who may ask for them, and for a ledger."""
