"""``python -m benchmarks.frameworks``."""

import sys

from benchmarks.frameworks.run import main

if __name__ == "__main__":
    sys.exit(main())
