"""Compiles a BPF program of some hundred lines with BCC, for ``pace.compiling_seconds``: a script of its own."""

import os
from pathlib import Path

STUB = Path(__file__).parents[1] / "daemon/trainprobe/bpf/src/stub"  # kernel headers that hold nothing
FUNCTIONS = 60
COMMON = """
BPF_HASH(cells, u64, u64);
BPF_HASH(times, u64, u64);
static __always_inline u64 mixed(u64 key, u64 value) {
    u64 *cell = cells.lookup(&key), *at = times.lookup(&value);
    if (cell && at) {
        *cell += *at ^ value;
        if (*cell > *at) *at += 1;
        return *cell;
    }
    cells.update(&key, &value);
    return value;
}
"""
FUNCTION = """
int program_{0}(void *context) {{
    u64 key = {0}, value = bpf_ktime_get_ns();
    for (int turn = 0; turn < 8; turn++) {{
        value = mixed(key + turn, value);
        if (value & 1) value = mixed(value, key);
    }}
    return value;
}}
"""


if __name__ == "__main__":
    os.environ["BCC_KERNEL_SOURCE"] = str(STUB)
    import bcc

    bcc.BPF(text=(COMMON + "".join(FUNCTION.format(n) for n in range(FUNCTIONS))).encode(), cflags=["-g0"])
