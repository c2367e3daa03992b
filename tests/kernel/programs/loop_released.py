# SPDX-License-Identifier: Apache-2.0
"""A training loop on paper: each step lets go of the interpreter's lock in a library that is named like JAX's.

Arguments: the library, the number of steps. Starts when stdin says so; on stdout the time at which each step began.
"""

import ctypes
import json
import os
import sys
import time


def main() -> None:
    library = ctypes.PyDLL(sys.argv[1])
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    begins = []
    for _ in range(int(sys.argv[2])):
        begins.append(time.monotonic_ns())
        library.released(15_000)
        time.sleep(0.005)
    print(json.dumps(begins), flush=True)


if __name__ == "__main__":
    main()
