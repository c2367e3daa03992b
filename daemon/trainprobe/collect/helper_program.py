"""The program of a helper: a process that can be killed reads strangers' processes for the daemon (``pool``).

It imports ``os`` and modules built into the interpreter, nothing else: 5 ms to start, 2.7 MB of its own. It ends when
the daemon does (its socket closes), when nothing is asked for a while, and when a read lasts too long (SIGALRM).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import _struct
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # neither is in memory otherwise
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

IDLE_SECONDS, BUSY_SECONDS = 20, 2
FRAME, LENGTH = _struct.Struct("=Q"), _struct.Struct("=q")
NONE, DESCRIPTOR = -1, -2  # instead of a length
FIELDS = 4  # of a request: operation, path, two numbers
AT_ONCE = 1 << 16
SMALL, LARGE = 16 << 10, 1 << 20
FDS = 512  # descriptors of a process among which a file is looked for
PAGE = 4096
Answer = bytes | int | None
"""An int is a descriptor that is handed over."""


def read(path: bytes, limit: int, _: int = 0) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        parts, left, room = [], limit, SMALL
        while left > 0 and (part := os.read(fd, min(left, room))):
            parts.append(part)
            left -= len(part)
            if len(part) == room:  # a long one; some give a page at a time, whatever room there is
                room = min(4 * room, LARGE)
        return b"".join(parts)
    finally:
        os.close(fd)


def link(path: bytes, _: int, __: int) -> Answer:
    return os.readlink(path)


def count(path: bytes, limit: int, sized: int) -> Answer:
    """Entries of a directory. ``sized``: since Linux 6.2 (f1f1f2569901) the size of /proc/PID/fd is their number."""
    if sized and (size := os.stat(path).st_size) > 0:
        return b"%d" % min(size, limit)
    return b"%d" % len(_first(path, limit))


def names(path: bytes, limit: int, _: int) -> Answer:
    return b"\0".join(_first(path, limit))


def links(path: bytes, limit: int, looked: int) -> Answer:
    """How many links a directory has, and where ``looked`` of them lead, evenly chosen."""
    found = _first(path, limit)
    chosen = found[:: max(1, -(-len(found) // looked))]
    return b"\0".join([b"%d" % len(found), *_each(os.readlink, (path + b"/" + name for name in chosen))])


def children(path: bytes, limit: int, _: int) -> Answer:
    """Of all threads in /proc/PID/task."""
    files = (path + b"/" + name + b"/children" for name in _first(path, limit))
    return b" ".join(_each(lambda file: read(file, LARGE), files))


def shared_held(path: bytes, limit: int, _: int) -> Answer:
    """Bytes of the files of /dev/shm among the descriptors of /proc/PID/fd."""
    files = (path + b"/" + name for name in _first(path, limit))
    shared = [file for file in files for target in _each(os.readlink, [file]) if target.startswith(b"/dev/shm/")]
    held = {(status.st_dev, status.st_ino): 512 * status.st_blocks for status in _each(os.stat, shared)}
    return b"%d" % sum(held.values())


def opened(path: bytes, device: int, inode: int) -> Answer:
    """Where a descriptor in /proc/PID/fd leads that is this file; None where a lock on it is the process's own, too: it
    was given the descriptor, as flock(1) gives it to what it runs."""
    target = None
    for name in _first(path, FDS):
        for found in _each(os.stat, [path + b"/" + name]):
            if (found.st_dev, found.st_ino) == (device, inode):
                if b"\nlock:" in read(path + b"info/" + name, PAGE):
                    return None
                target = os.readlink(path + b"/" + name)
    return target


def memory(path: bytes, address: int, _: int) -> Answer:
    """Up to a zero byte, PAGE bytes at most; a mapping may end behind it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        here = PAGE - address % PAGE
        data = os.pread(fd, here, address)
        if b"\0" not in data:
            data += os.pread(fd, PAGE - here, address + here)
        return data.split(b"\0", 1)[0]
    finally:
        os.close(fd)


def space(path: bytes, _: int, __: int) -> Answer:
    """Bytes and files that are free; -1 files where they are not counted."""
    found = os.statvfs(path)
    return b"%d %d" % (found.f_bavail * found.f_frsize, found.f_favail if found.f_files else -1)


def status(path: bytes, _: int, __: int) -> Answer:
    found = os.stat(path)
    return b"%d %d %d" % (found.st_dev, found.st_ino, found.st_size)


def tmpfs(path: bytes, _: int, __: int) -> Answer:
    """Device, unit, and how many of these there are and are free; no link is followed."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstatvfs(fd)
        return b"%d %d %d %d" % (os.fstat(fd).st_dev, found.f_frsize, found.f_blocks, found.f_bfree)
    finally:
        os.close(fd)


def files(path: bytes, limit: int, device: int) -> Answer:
    """Names, times, bytes and users of the files in a directory, where it lies on that device; no link is followed."""
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(place).st_dev != device:
            return None
        listing = os.open(b"/proc/self/fd/%d" % place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(place)
    try:
        return b"\0".join(_each(lambda name: _row(listing, name), os.listdir(listing)[:limit]))
    finally:
        os.close(listing)


def _row(listing: int, name: str) -> bytes:
    found = os.stat(name, dir_fd=listing, follow_symlinks=False)
    changed, size = max(found.st_mtime, found.st_ctime), 512 * found.st_blocks
    return b"%s/%d %d %d" % (os.fsencode(name), changed, size, found.st_uid)


def user(_: bytes, uid: int, __: int) -> Answer:
    """Asks a directory service where one is set up."""
    import pwd

    return os.fsencode(pwd.getpwuid(uid).pw_name)


def counter(_: bytes, tid: int, number: int) -> Answer:
    """perf_event_open(2): the instructions of a thread in user space. A descriptor, or an error's number."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    any_cpu, no_group = ctypes.c_int(-1), ctypes.c_int(-1)
    descriptor = call(
        ctypes.c_long(number), ctypes.c_char_p(_INSTRUCTIONS), ctypes.c_int(tid), any_cpu, no_group,
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )  # fmt: skip
    return int(descriptor) if descriptor >= 0 else b"%d" % ctypes.get_errno()


def sent_bytes(fd: bytes, pid: int, number: int) -> Answer:
    """TCP_INFO of a process's connection: bytes that the other end has acknowledged, us in which there was something to
    send. pidfd_getfd(2), whose number is given, lends the descriptor."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    process = os.pidfd_open(pid)
    try:
        lent = call(ctypes.c_long(number), ctypes.c_int(process), ctypes.c_int(int(fd)), ctypes.c_uint(0))
    finally:
        os.close(process)
    if lent < 0:
        return None
    try:
        connection = _socket.socket(fileno=lent)
    except OSError:  # another file has that number by now
        os.close(lent)
        raise
    try:
        told = connection.getsockopt(_socket.IPPROTO_TCP, _socket.TCP_INFO, _BUSY + 8)
        return b"%d %d" % (LENGTH.unpack_from(told, _ACKNOWLEDGED) + LENGTH.unpack_from(told, _BUSY))
    finally:
        connection.close()


_ACKNOWLEDGED, _BUSY = 120, 168  # offsets in struct tcp_info

_CLOSE_ON_EXEC = 8
_USER_ONLY = 1 << 5 | 1 << 6  # exclude_kernel, exclude_hv
_TIMES = 3  # PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING
_INSTRUCTIONS = _struct.pack("=IIQQQQQ", 0, 136, 1, 0, 0, _TIMES, _USER_ONLY).ljust(136, b"\0")
"""PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS"""

WITHIN: dict[bytes, Callable[[bytes, int, int], Answer]] = {
    b"read": read, b"link": link, b"count": count, b"names": names, b"links": links, b"children": children,
    b"counter": counter,
}  # fmt: skip
"""They wait for locks of the kernel alone, and a signal ends that."""
BEYOND: dict[bytes, Callable[[bytes, int, int], Answer]] = {
    b"shared": shared_held, b"memory": memory, b"space": space, b"status": status, b"tmpfs": tmpfs, b"files": files,
    b"listed": names, b"user": user, b"sent": sent_bytes, b"opened": opened,
}  # fmt: skip
"""They ask a file system or a service, or wait for who holds a socket, which no signal may end."""


def _first(path: bytes, limit: int) -> list[bytes]:
    found: list[bytes] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if len(found) >= limit:
                break
            found.append(entry.name)
    return found


def _each(function: Callable[[Any], Any], these: Iterable[Any]) -> Iterator[Any]:
    """What went while we looked is left out."""
    for one in these:
        try:
            yield function(one)
        except OSError:
            continue


def answer(operation: bytes, path: bytes, first: bytes, second: bytes) -> Answer:
    try:
        return (WITHIN.get(operation) or BEYOND[operation])(path, int(first), int(second))
    except (OSError, ValueError, LookupError, OverflowError):
        return None


def serve(channel: _socket.socket, progress: int) -> None:
    """Until the other end closes. The number of the request that is at work stands in the file ``progress``."""
    while True:
        _signal.alarm(IDLE_SECONDS)
        request = _receive(channel)
        if request is None:
            return
        _signal.alarm(BUSY_SECONDS)
        fields = request.split(b"\0")
        parts, descriptors = [], []
        for number, at in enumerate(range(0, len(fields), FIELDS)):
            os.pwrite(progress, LENGTH.pack(number), 0)
            found = answer(*fields[at : at + FIELDS])
            if isinstance(found, bytes):
                parts += [LENGTH.pack(len(found)), found]
            else:
                parts.append(LENGTH.pack(NONE if found is None else DESCRIPTOR))
                descriptors += [] if found is None else [found]
        _send(channel, b"".join(parts), descriptors)


def _receive(channel: _socket.socket) -> bytes | None:
    data = b""
    while len(data) < FRAME.size or len(data) - FRAME.size < FRAME.unpack_from(data)[0]:
        part = channel.recv(AT_ONCE)
        if not part:
            return None
        data += part
    return data[FRAME.size :]


def _send(channel: _socket.socket, body: bytes, descriptors: list[int]) -> None:
    head = FRAME.pack(len(body))
    numbers = _struct.pack(f"={len(descriptors)}i", *descriptors)
    handed = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)] if descriptors else []
    channel.sendmsg([head], handed)
    channel.sendall(body)
    for descriptor in descriptors:
        os.close(descriptor)


def main() -> None:
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # the terminal's: who started us decides
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    channel, progress = (int(argument) for argument in sys.argv[1:])
    try:
        serve(_socket.socket(fileno=channel), progress)
    except (BrokenPipeError, ConnectionResetError):
        pass
