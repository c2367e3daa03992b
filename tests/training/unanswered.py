"""A training whose memory lies in part on a file system that never answers a read: FUSE in a user namespace.

Usage: unanswered.py HOW DEVICE DIRECTORY SECONDS LOCKED. DIRECTORY is where the file system is mounted; it ends
after so many SECONDS. LOCKED is the program of locked.c. HOW is one of
  stack      a training whose Python stack cannot be read: a reader cannot be killed
  arguments  a training that has and starts children whose memory maps are locked
  lock       one such child
"""

import ctypes
import os
import signal
import struct
import subprocess
import sys
import time

INIT, LOOKUP, GETATTR, OPEN, READ, OPENDIR, FORGET, BATCH_FORGET, INTERRUPT = 26, 1, 3, 14, 15, 27, 2, 42, 36
PAGE = 4096
PRIVATE, FIXED = 2, 0x10
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("=6Q3I7I", node, 1 << 20, *[0] * 7, mode, 1, 0, 0, 0, PAGE, 0)


ANSWERS = {
    INIT: lambda node: struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 16, 0, 0),
    LOOKUP: lambda node: struct.pack("=QQQQII", 2, 0, 1000, 1000, 0, 0) + attributes(2),
    GETATTR: lambda node: struct.pack("=QII", 1000, 0, 0) + attributes(node),
    OPEN: lambda node: struct.pack("=QII", 1, 0, 0),
}


def serve(channel):
    """Answer everything but reads. Its end aborts the connection: whoever waits for a read gets an error."""
    while True:
        try:
            request = os.read(channel, 1 << 20)
        except InterruptedError:
            continue
        _, operation, unique, node = struct.unpack_from("=IIQQ", request)
        if operation in (READ, FORGET, BATCH_FORGET, INTERRUPT):
            continue
        answer, body = ANSWERS.get(operation), b""
        if answer is not None:
            body = answer(node)
        os.write(channel, struct.pack("=IiQ", 16 + len(body), 0 if answer else -38, unique) + body)


def mounted(device, directory, seconds):
    """Mount it, served by a process of its own: one that serves itself could not be killed."""
    channel = os.open(device, os.O_RDWR)
    options = f"fd={channel},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"unanswered", directory.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "FUSE cannot be mounted")
    if os.fork() == 0:
        signal.alarm(seconds)
        serve(channel)
    os.close(channel)


def mapped(file, address=None):
    at = libc.mmap(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), 1, PRIVATE | (FIXED if address else 0), file, 0)
    assert at != ctypes.c_void_p(-1).value
    return at


def without_lines(directory):
    """A function that waits, in whose line table a page is missing: only who wants its line reads there."""
    names = {"time": time}
    exec("def wait():\n" + "    x = 1\n" * 8000 + "    time.sleep(600)\n", names)
    table = names["wait"].__code__.co_linetable
    begin = id(table) + bytes.__basicsize__ - 1
    page = -(-begin // PAGE) * PAGE
    assert page + PAGE <= begin + len(table)
    mapped(os.open(f"{directory}/file", os.O_RDONLY), page)
    return names["wait"]


def train(steps):
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 64)).sum().backward()
        time.sleep(0.02)
        optimizer.step()


def main():
    how, device, directory, seconds, locked = sys.argv[1:]
    mounted(device, directory, int(seconds))
    command = [locked, f"{directory}/file"]
    if how == "lock":
        os.execv(locked, command)
    if how == "arguments":
        children = [subprocess.Popen(command)]
        time.sleep(0.5)
        train(50)
        for _ in range(20):
            children.append(subprocess.Popen(command))
            train(5)
        train(100_000)
    wait = without_lines(directory)
    train(150)
    wait()


main()
