"""Where the issuer's signing keys come from: a file, a URL, or the issuer's discovery document.

Only the configured issuer is asked, by HTTPS (by HTTP on this machine only), without redirects and proxies, and for a bounded answer.

Source: OpenID Connect Discovery 1.0 sections 3 and 4.
"""

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from bearlake.errors import Invalid, Unavailable
from bearlake.serving.authentication.settings import TokenSettings
from bearlake.serving.authentication.signing_keys import BYTES_MAX, Fetch, SigningKeys
from bearlake.serving.listener import is_loopback

DISCOVERY = "/.well-known/openid-configuration"

FILE_REFRESH_MS = 1_000
"""Age (ms) at which a file of keys is read again."""


def signing_keys(settings: TokenSettings) -> SigningKeys:
    """Return the keys of the configured issuer. Raises `Invalid` if a URL is neither HTTPS nor on this machine."""
    if settings.keys_file:
        fetch: Fetch = KeysFile(Path(settings.keys_file))
        refresh_ms, retry_ms = FILE_REFRESH_MS, FILE_REFRESH_MS
    elif not settings.issuer:
        fetch, refresh_ms, retry_ms = no_keys, settings.refresh_ms, settings.retry_ms
    else:
        fetch = KeysUrl(settings)
        refresh_ms, retry_ms = settings.refresh_ms, settings.retry_ms
    return SigningKeys(fetch, refresh_ms=refresh_ms, retry_ms=retry_ms, stale_ms_max=settings.stale_ms_max)


async def no_keys() -> bytes:
    """Raises `Unavailable`: no issuer is configured."""
    raise Unavailable("no token issuer is configured")


class KeysFile:
    """Reads a JWKS file, outside the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __call__(self) -> bytes:
        """Return the file's content. Raises `Unavailable` if it cannot be read."""
        try:
            return await asyncio.to_thread(self._read)
        except OSError as error:
            raise Unavailable(f"authentication.token.keys_file cannot be read: {error}") from error

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(BYTES_MAX + 1)


class KeysUrl:
    """Fetches the issuer's keys over HTTP."""

    def __init__(self, settings: TokenSettings) -> None:
        """Raises `Invalid` for a URL that may not be asked."""
        self._issuer = settings.issuer
        self._url = settings.keys_url
        self._timeout = aiohttp.ClientTimeout(total=settings.fetch_timeout_ms / 1000)
        check_url(self._url or self._issuer)

    async def __call__(self) -> bytes:
        """Return the JWKS document. Raises `Unavailable` if the issuer does not answer with one, `Invalid` if it names a wrong URL."""
        async with aiohttp.ClientSession(timeout=self._timeout, trust_env=False) as session:
            return await _get(session, self._url or await self._discover(session))

    async def _discover(self, session: aiohttp.ClientSession) -> str:
        try:
            found = json.loads(await _get(session, self._issuer.rstrip("/") + DISCOVERY))
            issuer, url = found["issuer"], found["jwks_uri"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Invalid("the token issuer's discovery document is malformed") from error
        if issuer != self._issuer:
            raise Invalid("the token issuer's discovery document names another issuer")
        if not isinstance(url, str):
            raise Invalid("the token issuer's discovery document is malformed")
        check_url(url)
        return url


def check_url(url: str) -> None:
    """Raise `Invalid` unless keys may be fetched from `url`."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise Invalid("authentication.token: malformed URL of the issuer or its keys") from None
    if parts.scheme == "https" and host:
        return
    if parts.scheme != "http" or not is_loopback(host):
        raise Invalid("authentication.token: keys are fetched by https:// only (http:// on this machine)")


async def _get(session: aiohttp.ClientSession, url: str) -> bytes:
    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise Unavailable(f"the token issuer answered {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > BYTES_MAX:
                    raise Unavailable(f"the token issuer's answer has more than {BYTES_MAX} bytes")
            return bytes(body)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unavailable(f"the token issuer does not answer: {error!r}") from error
