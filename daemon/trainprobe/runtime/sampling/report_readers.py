"""Whether somebody follows what is published: `top` and the live page read a report again and again, a scrape once."""

from __future__ import annotations

import ctypes
import os
import struct

from trainprobe.model.moment import NS

TWICE_NS = 3 * NS  # reads of one report so close together are somebody's who waits for the next one
GONE_NS = 5 * NS  # after the last of them
_OPENED = 0x20  # IN_OPEN
_EVENT = struct.Struct("=iIII")  # struct inotify_event, without a name: files are watched, not directories
_ROOM = 64 * _EVENT.size


class Readers:
    """Hears of each opening of the files that ``follow`` names (inotify). Where the kernel refuses, of none."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = int(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._opened: dict[int, int] = {}  # by watch: when last
        self._twice_ns: int | None = None

    def fileno(self) -> int | None:
        """Readable when one was opened."""
        return self._descriptor if self._descriptor >= 0 else None

    def follow(self, path: str) -> None:
        """A file that has just been put in place of the last one of that name, which the kernel then forgets."""
        if self._descriptor >= 0:
            self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), ctypes.c_uint32(_OPENED))

    def read(self, now_ns: int) -> bool:
        """Take in what was opened; whether anything was. (That a report was replaced is told, too.)"""
        was_opened = False
        for watch, mask, _, _ in self._events():
            if mask & _OPENED:
                if now_ns - self._opened.get(watch, -TWICE_NS) < TWICE_NS:
                    self._twice_ns = now_ns
                self._opened[watch] = now_ns
                was_opened = True
            else:
                self._opened.pop(watch, None)
        return was_opened

    def _events(self) -> list[tuple[int, int, int, int]]:
        try:
            return list(_EVENT.iter_unpack(os.read(self._descriptor, _ROOM)))
        except (BlockingIOError, struct.error):
            return []

    def follows(self, now_ns: int) -> bool:
        """Whether somebody follows what is published."""
        return self._twice_ns is not None and now_ns - self._twice_ns < GONE_NS

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
