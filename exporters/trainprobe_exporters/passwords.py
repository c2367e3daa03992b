"""Names and passwords (HTTP basic auth): in the clear from a file of ours, or as bcrypt hashes.

bcrypt is meant to be slow (0.06 s of CPU at cost 10), so a good pair is hashed once and remembered, hashing is done
in one thread, one after the other, with a pause after each wrong password, and only a few may wait for it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping

MAX_WAITING = 8
MAX_REMEMBERED = 64
PAUSE_FACTOR = 4  # guessing takes a fifth of a core at most
_NOBODY = "$2y$10$" + "." * 53  # hashed for names that nobody has, so that time does not tell which names there are
BCRYPT_BYTES = 72  # what it takes of a password; the library refuses longer ones


class BusyError(Exception):
    """Too many passwords wait to be checked."""


class Passwords:
    """Who may in. ``hashed`` and ``plain`` are passwords by name. Raises OSError where bcrypt cannot be had."""

    def __init__(self, *, hashed: Mapping[str, str] | None = None, plain: Mapping[str, str] | None = None) -> None:
        self._hashed = dict(hashed or {})
        self._plain = dict(plain or {})
        self._salt = secrets.token_bytes(16)
        self._good: dict[bytes, None] = {}
        self._waiting = 0
        self._turn = asyncio.Lock()
        if self._hashed:
            _assert_bcrypt()

    def __bool__(self) -> bool:
        return bool(self._hashed or self._plain)

    async def name(self, authorization: str) -> str:
        """The name in an Authorization header if its password is right, else "". Raises BusyError."""
        pair = _pair(authorization)
        if pair is None or not self:
            return ""
        name, password = pair
        if name in self._plain:
            return name if hmac.compare_digest(password, self._plain[name].encode()) else ""
        return name if await self._is_right(name, password) else ""

    async def _is_right(self, name: str, password: bytes) -> bool:
        if not self._hashed:
            return False
        known = hashlib.sha256(self._salt + name.encode() + b"\0" + password).digest()
        if known in self._good:
            return True
        if self._waiting >= MAX_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            async with self._turn:
                return known in self._good or await self._hash(name, password, known)
        finally:
            self._waiting -= 1

    async def _hash(self, name: str, password: bytes, known: bytes) -> bool:
        begun = time.monotonic()
        wanted = self._hashed.get(name, _NOBODY)
        is_right = await asyncio.get_running_loop().run_in_executor(None, _matches, password, wanted)
        if is_right and name in self._hashed:
            while len(self._good) >= MAX_REMEMBERED:
                del self._good[next(iter(self._good))]
            self._good[known] = None
            return True
        await asyncio.sleep(PAUSE_FACTOR * (time.monotonic() - begun))
        return False


def _pair(authorization: str) -> tuple[str, bytes] | None:
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(given.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon and b"\0" not in password else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def _matches(password: bytes, wanted: str) -> bool:
    import bcrypt  # 1 MB that only hashed passwords need

    return bcrypt.checkpw(password[:BCRYPT_BYTES], wanted.encode())


def _assert_bcrypt() -> None:
    try:
        _matches(b"", "$2y$04$" + "." * 53)
    except ImportError as error:
        raise OSError(0, f"no bcrypt: {error} (python3-bcrypt brings it)") from None
