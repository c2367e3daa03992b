"""Short-lived processes, as many a minute as are asked for: ``crowd.py DIRECTORY PER_MINUTE COUNTED SEED``.

Some have the names of what is looked for. Stopped for a while it goes on as before and makes up for nothing. The file
COUNTED says how many there were.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from pathlib import Path

NAMES = ("true", "true", "true", "python3", "pt_data_worker", '\n"}\\\x1b[2J')
ROUND_SECONDS = 0.25


def main() -> None:
    directory, per_minute, counted = Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    beside = counted.with_suffix(".new")
    programs = [os.fsencode(shutil.copy("/bin/true", directory / name)) for name in dict.fromkeys(NAMES)]
    chance = random.Random(sys.argv[4])
    begun, owed, last = 0, 0.0, time.monotonic()
    while os.getppid() != 1:
        now = time.monotonic()
        owed += per_minute / 60 * min(now - last, 4 * ROUND_SECONDS)
        last = now
        for _ in range(int(owed)):
            program = chance.choice(programs)
            os.posix_spawn(program, [program, b"train.py", b"\xff\n"], {b"RANK": b"0", b"SLURM_JOB_ID": b"\n\xff"})
            begun += 1
        owed -= int(owed)
        beside.write_text(str(begun))
        beside.rename(counted)  # whole, though we may be stopped for minutes
        time.sleep(ROUND_SECONDS)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


if __name__ == "__main__":
    main()
