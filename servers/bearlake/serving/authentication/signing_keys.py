"""The public keys with which an issuer signs its tokens (JWKS), fetched in the background and bounded.

Only the configured issuer is asked. Keys are fetched again after `refresh_ms`, and earlier if a token names an unknown key, but never more
often than every `retry_ms`. If the issuer does not answer, the known keys stay in force until they are `stale_ms_max` old. So tokens stay
valid through a short outage of the issuer, and a key that the issuer withdrew does not stay trusted.

Source: RFC 7517 (JSON Web Key); OpenID Connect Discovery 1.0 section 4.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

import jwt

from bearlake.errors import Invalid, Unavailable

log = logging.getLogger(__name__)

KEYS_MAX = 100
"""Maximum number of keys of one issuer; a document with more keys is refused."""
BYTES_MAX = 1 << 20

Fetch = Callable[[], Awaitable[bytes]]
"""Returns the issuer's JWKS document of at most `BYTES_MAX` bytes. Raises `Unavailable`."""


class SigningKeys:
    """The current keys by id."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        refresh_ms: int,
        retry_ms: int,
        stale_ms_max: int,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._fetch = fetch
        self._refresh_s = refresh_ms / 1000
        self._retry_s = retry_ms / 1000
        self._stale_s = stale_ms_max / 1000
        self._now_s = now_s
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched_s = -float("inf")
        self._tried_s = -float("inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key with this id; without an id, the issuer's only key. None if the issuer has no such key.

        Raises:
            Unavailable: the keys are not known, or older than `stale_ms_max`.
        """
        age_s = self._now_s() - self._fetched_s
        if age_s > self._refresh_s or self._known(key_id) is None:
            refresh = self._start_refresh()
            if refresh is not None and (age_s > self._stale_s or self._known(key_id) is None):
                await asyncio.shield(refresh)
        if self._now_s() - self._fetched_s > self._stale_s:
            raise Unavailable("the token issuer's keys are not available")
        return self._known(key_id)

    async def close(self) -> None:
        """End a running fetch."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    def _known(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _start_refresh(self) -> asyncio.Task[None] | None:
        """Return the running fetch, or a new one; None within `retry_ms` of the last attempt."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        if self._now_s() - self._tried_s < self._retry_s:
            return None
        self._tried_s = self._now_s()
        self._fetching = asyncio.get_running_loop().create_task(self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            self._keys = parse_keys(await self._fetch())
            self._fetched_s = self._now_s()
        except (Unavailable, Invalid) as error:
            log.warning("cannot refresh the token issuer's keys", extra={"error": str(error)})


def parse_keys(document: bytes) -> dict[str | None, jwt.PyJWK]:
    """Return the signature keys of a JWKS document by id; keys of unknown kinds are left out.

    Raises:
        Invalid: not a JWKS document, or one with more than `KEYS_MAX` keys.
    """
    if len(document) > BYTES_MAX:
        raise Invalid(f"the issuer's keys have {len(document)} bytes, the limit is {BYTES_MAX}")
    try:
        found = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Invalid("the issuer's keys are not a JWKS document") from error
    if not isinstance(found, list) or len(found) > KEYS_MAX:
        raise Invalid(f"the issuer's keys are not a list of at most {KEYS_MAX} keys")
    keys: dict[str | None, jwt.PyJWK] = {}
    for key in found:
        if not isinstance(key, dict) or key.get("kty") == "oct" or key.get("use", "sig") != "sig":
            continue  # a symmetric key would let everyone who can read it sign tokens
        try:
            keys[key.get("kid")] = jwt.PyJWK(key)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
    return keys
