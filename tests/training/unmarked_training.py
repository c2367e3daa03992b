"""A training loop without PyTorch: gradient descent in NumPy, a checkpoint and a slow server now and then."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import threading
import time

import numpy as np


def save(directory: str, weights: np.ndarray) -> None:
    with open(os.path.join(directory, "model.npz.tmp"), "wb") as file:
        np.savez(file, weights=weights, moments=np.zeros(12_000_000))
        file.flush()
        os.fsync(file.fileno())
    os.replace(os.path.join(directory, "model.npz.tmp"), os.path.join(directory, "model.npz"))


def ask(seconds: float) -> None:
    """A request to a server that takes its time."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                time.sleep(seconds)
                connection.sendall(b"ok")

        thread = threading.Thread(target=answer)
        thread.start()
        with socket.create_connection(server.getsockname()) as connection:
            connection.recv(2)
        thread.join()


def main() -> None:
    directory, seed, clean = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "clean"
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    features, labels = numbers.standard_normal((2_000, 256)), numbers.standard_normal((2_000, 32))
    weights = np.zeros((256, 32))
    begin = time.time()
    acts = [] if clean else [(33.0, "checkpoint"), (38.0, "network"), (43.0, "checkpoint"), (48.0, "network")]
    planted, step = [], 0
    while time.time() - begin < 52:
        for _ in range(40):
            weights -= 1e-4 * features.T @ (features @ weights - labels)
        step += 1
        if step % 50 == 0:
            print(f"step {step} loss {float(np.square(features @ weights - labels).mean()):.4f}", flush=True)
        if acts and time.time() - begin >= acts[0][0]:
            _, cause = acts.pop(0)
            start = time.time()
            if cause == "checkpoint":
                save(directory, weights)
            else:
                ask(rng.uniform(0.7, 1.6))
            planted.append({"cause": cause, "start": start, "end": time.time(), "seconds": time.time() - start})
    with open(os.path.join(directory, "truth.json"), "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "planted": planted}, file)


if __name__ == "__main__":
    main()
