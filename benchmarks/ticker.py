"""When this host's processors stood still, by a clock of its own: ``python benchmarks/ticker.py``, until it is ended.

Each line: when a sleep of some milliseconds ended late, in UNIX seconds, and by how many seconds, without what the
scheduler let this program wait for a processor (the second figure of /proc/self/schedstat).
"""

import time

TICK = 0.005
LATE = 0.015


def queued() -> float:
    with open("/proc/self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9


if __name__ == "__main__":
    before, waited = time.monotonic(), queued()
    while True:
        time.sleep(TICK)
        now, waits = time.monotonic(), queued()
        late = now - before - TICK - (waits - waited)
        if late > LATE:
            print(f"{time.time():.4f} {late:.4f}", flush=True)
        before, waited = now, waits
