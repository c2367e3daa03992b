# SPDX-License-Identifier: Apache-2.0
"""A small real training with a GPU on paper: it waits for that as CUDA does, and tells how long on stdout.

Arguments: JSON. Starts when stdin says so.
"""

import ctypes
import json
import os
import random
import sys
import time

import torch

FLAGS = {"spin": 0, "yield": 2, "sleep": 4}


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def main() -> None:
    draw = random.Random(os.environ.get("TRAINPROBE_SEED", "1"))
    wanted = {"steps": 40, "how": "spin", "work": [0.01, 0.03], "cpu": 0.004, "calls": ["synchronize_stream"]}
    wanted |= json.loads(sys.argv[1])
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    folder, library, caller = wanted["folder"], wanted["library"], wanted["caller"]
    cuda = ctypes.CDLL(f"{folder}/{library}", ctypes.RTLD_GLOBAL)
    calls = ctypes.PyDLL(f"{folder}/{caller}")  # as PyTorch, it holds the interpreter's lock or not: no matter
    cuda.fake_launch.argtypes = [ctypes.c_double]
    calls.allocate.restype = ctypes.c_void_p
    calls.release.argtypes = [ctypes.c_void_p]
    cuda.fake_memory.argtypes = [ctypes.c_int64, ctypes.c_double]
    cuda.fake_memory(wanted.get("room", 1 << 34), wanted.get("memory_seconds", 0.0))
    cuda.cudaSetDeviceFlags(FLAGS[wanted["how"]])
    known = {"steps": 0, "waited": [], "memory": [], "allocations": 0, "refused": 0, "churned": []}
    error, kept = ctypes.c_int(0), []
    churn = wanted.get("churn", {})  # by step: pairs of allocating and freeing
    for step in range(wanted["steps"]):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 64)).sum()
        cuda.fake_launch(draw.uniform(*wanted["work"]) + (wanted.get("longer", {}).get(str(step), 0.0)))
        memory = 0.0
        if pairs := churn.get(str(step), 0):
            begun, wall = time.perf_counter(), time.time()
            for _ in range(pairs):
                block = calls.allocate(1 << 20, ctypes.byref(error))
                calls.release(block)
                known["allocations"] += 1
            memory = time.perf_counter() - begun
            known["churned"].append([wall, time.time()])
        if wanted.get("keep") and step >= wanted.get("keep_from", 0):
            block = calls.allocate(wanted["keep"], ctypes.byref(error))
            known["allocations"] += 1
            if error.value:
                known["refused"] += 1
                if wanted.get("gives_up"):
                    print(json.dumps(known), flush=True)
                    time.sleep(0.05)
                    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
                while kept:
                    calls.release(kept.pop())
            else:
                kept.append(block)
        known["memory"].append(memory)
        loss.backward()
        begun = time.perf_counter()
        for name in wanted["calls"]:
            getattr(calls, name)()
        known["waited"].append(time.perf_counter() - begun)
        spin(wanted["cpu"])
        optimizer.step()
        known["steps"] += 1
    print(json.dumps(known), flush=True)


if __name__ == "__main__":
    main()
