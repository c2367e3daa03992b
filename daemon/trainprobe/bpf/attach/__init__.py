"""Where programs are attached: system calls, marks of libtorch and CUDA, and who may ask for them."""
