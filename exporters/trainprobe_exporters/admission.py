"""Who gets in: by the unix socket, with the token, or with a name and its password."""

from __future__ import annotations

import hmac
from dataclasses import field, replace

from trainprobe.model.dataclass import dataclass
from trainprobe_exporters.hosts import Hosts
from trainprobe_exporters.passwords import BusyError, Passwords
from trainprobe_exporters.request import BadRequestError, Request

TOKEN_HEADER = "x-trainprobe-token"


@dataclass
class Admission:
    """``token`` opens page and API; None: it could not be made. ``guards_all``: metrics and health are shut too.

    ``hosts``: by which names what is open may be asked for; None: by any.
    """

    token: str | None
    passwords: Passwords = field(default_factory=Passwords)
    guards_all: bool = False
    hosts: Hosts | None = None

    async def recognise(self, request: Request) -> Request:
        """The request with the name whose password came with it. Raises BadRequestError when too many wait."""
        try:
            return replace(request, user=await self.passwords.name(request.headers.get("authorization", "")))
        except BusyError:
            raise BadRequestError(503, "too many passwords wait to be checked; try again") from None

    def admits(self, request: Request) -> bool:
        return request.is_local or bool(request.user) or self._has_token(request)

    def is_asked_by_name(self, request: Request) -> bool:
        """Whether the request names a host that we are; one that is admitted may name any."""
        hosts = None if self.guards_all else self.hosts
        return hosts is None or hosts.allow(request.headers.get("host", "")) or self.admits(request)

    @property
    def is_shut(self) -> bool:
        """Whether nothing that a client could send over the network would open page and API."""
        return self.token is None and not self.passwords

    @property
    def challenge(self) -> str:
        """What a client is asked for (WWW-Authenticate)."""
        return 'Basic realm="trainprobe", charset="UTF-8"' if self.passwords else "Bearer"

    def _has_token(self, request: Request) -> bool:
        if self.token is None:
            return False
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            # Not in Authorization where a proxy before us has that header for itself.
            given = request.headers.get(TOKEN_HEADER, "") or request.query.get("token", "")
        return hmac.compare_digest(given.strip().encode(), self.token.encode())
