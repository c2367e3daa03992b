"""``python -m trainprobe.cli``"""

import sys

from trainprobe.cli import main

sys.exit(main())
