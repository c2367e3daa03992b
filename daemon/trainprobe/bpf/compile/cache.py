# SPDX-License-Identifier: Apache-2.0
"""Compiled programs, and what they must know of the kernel, kept from one start to the next in root's own directory.

They go into the kernel, so a file counts only where nobody else can have written it: it and its directory belong to
this user and are writable for no other. Whatever does not fit is ignored and compiled anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from trainprobe.bpf.compile import image
from trainprobe.bpf.compile.image import Image, Spoiled

USUAL = "/var/cache/trainprobe"
SWITCH = "TRAINPROBE_CACHE"
"""Environment: another directory, or "off"."""
MAX_BYTES = 16 << 20
_STALE_SECONDS = 60.0
T = TypeVar("T")
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Cache:
    """Images by name. ``notes``: what was ignored and why, in words for a person."""

    def __init__(self, directory: str) -> None:
        """``directory`` "": nothing is kept, nothing found."""
        self._directory = directory
        self.notes: list[str] = []

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Cache:
        """Where the switch says, else where systemd says, else the usual place."""
        directory = environment.get(SWITCH) or environment.get("CACHE_DIRECTORY", "").partition(":")[0] or USUAL
        return cls("" if directory == "off" else directory)

    def read(self, name: str, key: str) -> Image | None:
        """The image for this key; None where there is none, or none to be trusted."""
        return self._read(name, partial(image.decode, key=key))

    def words(
        self, name: str, key: str, make: Callable[[], list[str]], usable: Callable[[list[str]], bool]
    ) -> list[str]:
        """Words that were kept for this key, else those made now, which are kept where they are ``usable``."""
        kept = self._read(name, partial(_words, key=key))
        if kept is not None:
            return kept
        made = make()
        if usable(made):
            self._write(name, "\n".join([key, _digest(made), *made]).encode())
        return made

    def _read(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        if not self._directory:
            return None
        try:
            with self._opened() as directory:
                return decode(_bytes(name, directory))
        except FileNotFoundError:
            return None
        except OSError as error:
            self.ignored(name, error.strerror or str(error))
            return None
        except Spoiled as error:
            self.ignored(name, str(error))
            return None

    def ignored(self, name: str, reason: str) -> None:
        self.notes.append(f"{self._directory}/{name} is ignored and made anew: {reason}")

    def write(self, name: str, key: str, kept: Image) -> None:
        """At once for every reader; where it cannot be, the next start compiles again."""
        self._write(name, image.encode(kept, key))

    def _write(self, name: str, data: bytes) -> None:
        if not self._directory:
            return
        with contextlib.suppress(FileExistsError, OSError):
            os.mkdir(self._directory, 0o700)
        try:
            with self._opened() as directory:
                _remove_stale(directory)
                _replace(name, data, directory)
        except (OSError, Spoiled):
            pass  # a read-only system, a full disk; one that others may write to was told when it was read

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _own(os.fstat(descriptor), "its directory")
            yield descriptor
        finally:
            os.close(descriptor)


def _words(data: bytes, key: str) -> list[str] | None:
    """None: they are for something else. Raises Spoiled."""
    kept, digest, *words = [*data.decode(errors="replace").split("\n"), ""]
    if digest != _digest(words[:-1]):
        raise Spoiled("it is damaged")
    return words[:-1] if kept == key else None


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _own(found: os.stat_result, what: str) -> None:
    """Raises Spoiled where somebody else could have written it."""
    if found.st_uid != os.geteuid():
        raise Spoiled(f"{what} belongs to user {found.st_uid}")
    if found.st_mode & _OTHERS:
        raise Spoiled(f"others may write to {what} (mode {stat.S_IMODE(found.st_mode):04o})")


def _bytes(name: str, directory: int) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Spoiled("it is no plain file")
        _own(found, "it")
        if found.st_size > MAX_BYTES:
            raise Spoiled(f"it has {found.st_size} bytes")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES)
    finally:
        os.close(descriptor)


def _replace(name: str, data: bytes, directory: int) -> None:
    temporary = f"{name}.{os.getpid()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600, dir_fd=directory), "wb") as file:
        file.write(data)
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def _remove_stale(directory: int) -> None:
    """What starts that were killed left behind."""
    for name in os.listdir(directory):
        if not name.endswith(".new"):
            continue
        with contextlib.suppress(FileNotFoundError):
            if time.time() - os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime > _STALE_SECONDS:
                os.unlink(name, dir_fd=directory)
