"""A training whose folder, library and /dev/shm lie on a file system that stops answering.

Usage: hung_filesystem.py DIRECTORY LIBRARY UID AFTER SECONDS, as root in a mount namespace of its own. LIBRARY is
served as DIRECTORY/libtorch_cpu.so to everybody, root too (of FUSE in a user namespace the kernel lets nobody outside
wait); AFTER so many seconds of training nothing is answered any more, until all ends after SECONDS.
"""

import ctypes
import os
import signal
import struct
import sys
import time

FORGET, BATCH_FORGET, INTERRUPT = 2, 42, 36
INIT, LOOKUP, GETATTR, OPEN, READ, OPENDIR, READDIR, STATFS = 26, 1, 3, 14, 15, 27, 28, 17
HEADER, NO_ENTRY, NO_CALL, KEPT_SECONDS = 40, 2, 38, 1
BIND, LIBRARY = 4096, b"libtorch_cpu.so"
FOLDER_NODE, FILE_NODE = 1, 2
DUMPABLE = 4  # PR_SET_DUMPABLE
libc = ctypes.CDLL(None, use_errno=True)


class Server:
    """Answers until it is told to stop (SIGUSR1); then it takes requests and keeps them, which no signal ends."""

    def __init__(self, content):
        self.content = content
        self.answers = True
        signal.signal(signal.SIGUSR1, self.stop)

    def stop(self, *_):
        self.answers = False

    def serve(self, channel):
        while True:
            try:
                request = os.read(channel, 1 << 20)
            except InterruptedError:
                continue
            _, operation, unique, node = struct.unpack_from("=IIQQ", request)
            if operation in (FORGET, BATCH_FORGET, INTERRUPT) or not self.answers:
                continue
            error, body = self.answer(operation, node, request[HEADER:])
            os.write(channel, struct.pack("=IiQ", 16 + len(body), -error, unique) + body)

    def answer(self, operation, node, body):
        if operation == INIT:
            return 0, struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 16, 0, 0)
        if operation == LOOKUP:
            if body.rstrip(b"\0") != LIBRARY:
                return NO_ENTRY, b""
            kept = struct.pack("=QQQQII", FILE_NODE, 0, KEPT_SECONDS, KEPT_SECONDS, 0, 0)
            return 0, kept + self.attributes(FILE_NODE)
        if operation == GETATTR:
            return 0, struct.pack("=QII", KEPT_SECONDS, 0, 0) + self.attributes(node)
        if operation in (OPEN, OPENDIR):
            return 0, struct.pack("=QII", node, 0, 0)
        if operation == READ:
            _, offset, size = struct.unpack_from("=QQI", body)
            return 0, self.content[offset : offset + size]
        if operation == STATFS:
            return 0, struct.pack("=5QIII28x", 1 << 20, 1 << 19, 1 << 19, 1 << 10, 1 << 9, 4096, 255, 4096)
        return (0, b"") if operation == READDIR else (NO_CALL, b"")

    def attributes(self, node):
        size, mode = (4096, 0o40755) if node == FOLDER_NODE else (len(self.content), 0o100755)
        return struct.pack("=6Q3I7I", node, size, -(-size // 512), *[0] * 6, mode, 1, 0, 0, 0, 4096, 0)


def mounted(directory):
    """What its server reads and writes."""
    channel = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={channel},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"hung", directory.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "FUSE cannot be mounted")
    return channel


def main():
    directory, library, uid, after, seconds = sys.argv[1:]
    with open(library, "rb") as file:
        content = file.read()
    channel = mounted(directory)
    if libc.mount(directory.encode(), b"/dev/shm", None, BIND, None):
        raise OSError(ctypes.get_errno(), "it cannot be /dev/shm too")
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    libc.prctl(DUMPABLE, 1, 0, 0, 0)  # as execve(2) would: /proc/PID is the user's again
    server = os.fork()  # who serves himself cannot be killed
    if server == 0:
        signal.alarm(int(seconds))
        Server(content).serve(channel)
    os.close(channel)
    os.chdir(directory)
    ctypes.CDLL(f"{directory}/libtorch_cpu.so").start(1, 20)
    time.sleep(int(after))
    os.kill(server, signal.SIGUSR1)
    while True:
        time.sleep(0.1)
        try:
            os.stat(f"{directory}/checkpoint.pt")
        except OSError:
            pass


main()
