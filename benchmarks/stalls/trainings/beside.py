"""A program beside a training that is none itself: makes features with PyTorch and writes them as large .pth files.

``beside.py DIRECTORY SECONDS MEGABYTES [PAUSE]``
"""

from __future__ import annotations

import os
import sys
import time

import torch


def main() -> None:
    directory, seconds, megabytes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    pause = float(sys.argv[4]) if len(sys.argv) > 4 else 1.5
    torch.set_num_threads(1)
    features = torch.zeros(megabytes << 18)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        torch.save({"features": features}, os.path.join(directory, f"features-{number % 2}.pth"))
        number += 1
        time.sleep(pause)


if __name__ == "__main__":
    main()
