"""Requests that one server forwards to another for a client that has logged in: a token of the deployment names the client.

All servers derive the key from the deployment's secret in the metadata store, so a client cannot make such a token, and no header of a
client names its principal. A token is for one server and one request line. It ends after `VALID_S`, so that one that leaks is of little
use; the time also covers the difference of two servers' clocks.

Source: RFC 7519 (JSON Web Token), RFC 5869 (HKDF).
"""

from collections.abc import Awaitable, Callable
from time import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bearlake.errors import Denied
from bearlake.streams.principal import Principal

SCHEME = "Bearlake"
"""Scheme of the Authorization header between servers."""

VALID_S = 300

_ALGORITHM = "HS256"
_ISSUER = "bearlake"
_PURPOSE = b"bearlake: principals of forwarded requests, version 1"


class ForwardedLogins:
    """Makes and checks the tokens of one server."""

    def __init__(self, secret: Callable[[], Awaitable[bytes]], node_id: int, now_s: Callable[[], float] = time) -> None:
        """`secret` returns the deployment's secret (`UserStore.decoy_key`); `node_id` is this server's."""
        self._secret = secret
        self._node_id = node_id
        self._now_s = now_s
        self._derived = b""

    async def sign(self, who: Principal, node_id: int, method: str, path: str) -> str:
        """Return the Authorization header of a request to server `node_id`. `path` is escaped and has the query. Raises `Unavailable`."""
        claims = {
            "iss": _ISSUER,
            "aud": str(node_id),
            "exp": int(self._now_s()) + VALID_S,
            "sub": who.name,
            "kind": who.kind,
            "groups": sorted(who.groups),
            "host": who.host,
            "until": who.expires_s,
            "request": f"{method} {path}",
        }
        return f"{SCHEME} {jwt.encode(claims, await self._key(), _ALGORITHM)}"

    async def verify(self, token: str, method: str, path: str) -> Principal:
        """Return the client for which another server forwards this request.

        Raises:
            Denied: no server of the deployment made the token, or it is for another server or request, or has ended.
            Unavailable: the deployment's secret cannot be read.
        """
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                await self._key(),
                algorithms=[_ALGORITHM],
                issuer=_ISSUER,
                audience=str(self._node_id),
                options={"require": ["iss", "aud", "exp", "sub"], "verify_exp": False},
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise Denied("the token of a forwarded request is refused") from None  # the cause may quote the token
        until = claims["until"]
        now_s = self._now_s()
        if claims["request"] != f"{method} {path}" or claims["exp"] <= now_s or (until is not None and until <= now_s):
            raise Denied("the token of a forwarded request is for another request, or has ended")
        return Principal(claims["kind"], claims["sub"], frozenset(claims["groups"]), until, claims["host"])

    async def _key(self) -> bytes:
        if not self._derived:
            self._derived = HKDF(SHA256(), 32, salt=None, info=_PURPOSE).derive(await self._secret())
        return self._derived
