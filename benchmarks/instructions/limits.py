"""What watching may add to each kind of call, in instructions, by kernel and by who makes the call."""

from __future__ import annotations

KERNELS = {"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}
"""Debian 12's packages."""
KINDS = (
    "getppid", "write null", "write tmpfs", "pwrite tmpfs", "read zero", "open+close", "futex pair", "switch",
    "page fault", "uprobe pair", "step of marks", "fork+exit", "fork+exec",
)  # fmt: skip
BARE, IDLE, BESIDE, WATCHED = "bare", "idle", "beside", "watched"
WAYS = {
    IDLE: "beside an idle daemon",
    BESIDE: "beside a watched training",
    WATCHED: "in a watched training",
}
EXACT = 1.0
"""Two guests agree to less."""
NOISE = {"futex pair": 0.005, "open+close": 0.04, "fork+exit": 0.06, "fork+exec": 0.12}
"""Of the bare call, by which two guests differ: what lies in the caches of the kernel's allocators is not the same."""

_BESIDE: dict[str, float] = {
    "getppid": 153, "write null": 780, "write tmpfs": 780, "pwrite tmpfs": 800, "read zero": 765, "open+close": 1550,
    "futex pair": 900, "switch": 560, "page fault": 0, "uprobe pair": 3860, "step of marks": 5960, "fork+exit": 10_000,
    "fork+exec": 20_000,
}  # fmt: skip
_WATCHED: dict[str, float] = _BESIDE | {
    "write null": 1300, "write tmpfs": 1870, "pwrite tmpfs": 1890, "open+close": 3450, "futex pair": 1290,
    "switch": 810, "uprobe pair": 4280, "step of marks": 10_650,
}  # fmt: skip
LIMITS: dict[str, dict[str, dict[str, float]]] = {
    "6.1": {IDLE: dict.fromkeys(KINDS, 0.0), BESIDE: _BESIDE, WATCHED: _WATCHED},
    "6.12": {
        IDLE: dict.fromkeys(KINDS, 0.0),
        BESIDE: _BESIDE
        | {"getppid": 161, "write null": 815, "write tmpfs": 815, "pwrite tmpfs": 850, "read zero": 805,
           "open+close": 1660, "futex pair": 930, "switch": 590},
        WATCHED: _WATCHED
        | {"getppid": 161, "write null": 1015, "write tmpfs": 1660, "pwrite tmpfs": 1695, "read zero": 805,
           "open+close": 2870, "switch": 845},
    },
}  # fmt: skip
"""An idle host pays nothing. The file of ``open+close`` is open for writing meanwhile, so each close is looked at: that
of a descriptor which only reads ends nothing. On Linux 6.1 an empty program at both ends of a write takes 702, one at
each switch 75."""
