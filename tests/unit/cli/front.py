"""`trainprobe` with a stand-in for the half that needs rights: ``python front.py run … -- CMD``."""

from __future__ import annotations

import sys
from pathlib import Path

from trainprobe.cli import main
from trainprobe.runtime.session import privileges

PART = [sys.executable, str(Path(__file__).with_name("fake_part.py"))]
privileges.program = lambda: PART
privileges.missing = lambda _status=None: []
sys.exit(main())
