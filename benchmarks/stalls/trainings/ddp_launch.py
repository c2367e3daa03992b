"""Starts the ranks of a data-parallel training, as torchrun does it: one process each, told by the environment."""

from __future__ import annotations

import os
import socket
import subprocess
import sys


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> int:
    port = str(free_port())
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ddp_rank.py")
    world = 2
    ranks = []
    for rank in range(world):
        environment = os.environ | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        arguments = list(sys.argv[1:])
        if rank:
            arguments[arguments.index("--truth") + 1] += f".rank{rank}"
        ranks.append(subprocess.Popen([sys.executable, script, *arguments], env=environment))
    codes = [rank.wait() for rank in ranks]
    return max(code & 0xFF for code in codes)


if __name__ == "__main__":
    sys.exit(main())
