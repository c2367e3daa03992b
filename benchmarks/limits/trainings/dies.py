"""A training that shares tensors by file names and says that it has; whoever kills it leaves the files behind."""

from __future__ import annotations

import sys
import time

import torch
from torch import multiprocessing


def main() -> None:
    multiprocessing.set_sharing_strategy("file_system")
    kept = [torch.ones(int(size) // 4).share_memory_() for size in sys.argv[1:]]
    print(len(kept), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
