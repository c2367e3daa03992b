# SPDX-License-Identifier: Apache-2.0
"""A training loop by hand, without PyTorch, for a GPU on paper; what it does now and then beside is planted.

Arguments: JSON. Starts when stdin says so, and tells its own truth on stdout. ``kind``:
``waits``: each step copies a batch, launches kernels and waits for them.
``graphs``: each step launches a graph and waits where CUDA does not see it, as JAX does.
``kernels``: launches only, of several kernels, some of them more than once a step; the queue's length holds it up.
"""

import ctypes
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time


def save(seconds: float) -> None:
    with tempfile.NamedTemporaryFile(suffix=".npz", dir=os.getcwd()) as file:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            file.write(os.urandom(1 << 16))
            os.fsync(file.fileno())


def ask(seconds: float) -> None:
    """A request to a server that takes its time."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as asking:
        answering, _ = server.accept()
        with answering:
            threading.Timer(seconds, answering.sendall, [b"ok"]).start()
            asking.recv(2)


def main() -> None:
    draw = random.Random(os.environ.get("TRAINPROBE_SEED", "1"))
    wanted = {"steps": 600, "kind": "waits", "work": 0.02, "kernels": 12, "layers": 3, "plants": {}, "log_every": 25}
    wanted |= json.loads(sys.argv[1])
    print(os.getpid(), flush=True)
    if wanted.get("gate", True):
        sys.stdin.readline()
    cuda = ctypes.CDLL(f"{wanted['folder']}/{wanted['library']}", ctypes.RTLD_GLOBAL)
    calls = ctypes.PyDLL(f"{wanted['folder']}/{wanted['caller']}")
    cuda.fake_launch.argtypes = [ctypes.c_double]
    cuda.fake_kernels.argtypes = [ctypes.c_double, ctypes.c_double]
    cuda.cudaSetDeviceFlags(4)
    work, kind, number = wanted["work"], wanted["kind"], wanted["kernels"] * (wanted["layers"] + 1)
    if kind == "kernels":
        cuda.fake_kernels(work / number, 2 * work)
    known, begins, acts = [], [], {"save": save, "ask": ask}
    for step in range(wanted["steps"]):
        if plant := wanted["plants"].get(str(step)):
            what, seconds = plant
            before = time.time()
            acts[what](seconds)
            known.append({"what": what, "start": before, "end": time.time()})
        begins.append(time.monotonic())
        lasts = work * draw.uniform(0.8, 1.2)
        if kind == "waits":
            calls.upload()
            calls.launch_step(wanted["kernels"], wanted["layers"])
            cuda.fake_launch(lasts)
            calls.synchronize_stream()
        elif kind == "graphs":
            calls.upload()
            calls.upload()
            calls.launch_graph()
            time.sleep(lasts)
        else:
            calls.launch_step(wanted["kernels"], wanted["layers"])
        if step % wanted["log_every"] == 0:
            calls.synchronize_event()
    print(json.dumps({"begins": begins, "planted": known}), flush=True)


if __name__ == "__main__":
    main()
