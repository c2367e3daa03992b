"""``python -m benchmarks.clean``."""

import sys

from benchmarks.clean.run import main

if __name__ == "__main__":
    sys.exit(main())
