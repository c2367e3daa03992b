"""A launch of many processes and threads that do little: what a big host is to the daemon, without its memory.

``crowd.py PROCESSES THREADS [FORKS_PER_SECOND] watched``: the first process forks the others; each thread wakes every
five seconds.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

WAKE_SECONDS = 5.0


def idle() -> None:
    while True:
        time.sleep(WAKE_SECONDS)


def busy_with_threads(threads: int) -> None:
    threading.stack_size(64 << 10)
    for _ in range(threads - 1):
        threading.Thread(target=idle, daemon=True).start()


def main() -> None:
    processes, threads = int(sys.argv[1]), int(sys.argv[2])
    forks = float(sys.argv[3]) if sys.argv[3] != "watched" else 0.0
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    sys.stdin.readline()  # until we are watched: a fork is then told by the kernel
    for _ in range(processes - 1):
        if os.fork() == 0:
            busy_with_threads(threads)
            idle()
    busy_with_threads(threads)
    print("all", flush=True)
    while forks:
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        time.sleep(max(0.0, 1 / forks - (time.monotonic() - begin)))
    idle()


if __name__ == "__main__":
    main()
