"""``python -m benchmarks.stalls``."""

import sys

from benchmarks.stalls.run import main

if __name__ == "__main__":
    sys.exit(main())
