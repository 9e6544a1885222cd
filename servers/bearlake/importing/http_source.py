"""Asks an HTTP API of a source for JSON: one request at a time, with a limit of time, size and redirects.

Libraries for HTTP are those of the servers (`serving`, `protocols`), which imports do not need.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPDefaultErrorHandler, HTTPErrorProcessor, OpenerDirector, Request

from bearlake.errors import AlreadyExists, Conflict, Corrupt, Denied, Invalid, NotFound, Unavailable
from bearlake.importing.http_connections import HttpHandler, HttpsHandler
from bearlake.importing.reach import Reach, Redirects
from bearlake.serving.listener import is_loopback

_REDIRECTS = (307, 308)
_READ_BYTES = 1 << 20


class HttpSource:
    """One API. Raises from every request:

    NotFound: there is no such resource.
    Denied: the API refuses this user, or redirects to where an import does not go.
    AlreadyExists: HTTP 409. Conflict: HTTP 412 and 405.
    Corrupt: the answer is no JSON, or too large.
    Unavailable: no answer, or any other error.
    """

    def __init__(
        self,
        name: str,
        url: str,
        authorization: Callable[[str, bool], str],
        context: ssl.SSLContext,
        *,
        login_setting: str,
        accept: str = "application/json",
        timeout_ms: int,
        bytes_max: int,
        redirect_count_max: int = 0,
    ) -> None:
        """`name`: what messages call it, such as "the registry". `url`: `http://host:port` or `https://…`, perhaps with a path.

        `authorization` returns the header of that name for a request to a host, and whether others on the way could read the request;
        empty: none. It is asked again for each redirect. `login_setting`: named in messages about a refusal. `timeout_ms`: the longest
        time for a request with its redirects. `redirect_count_max`: redirects that are followed, never from https:// to http://, nor
        to addresses that a source cannot mean (`reach.py`).
        Raises `Invalid`: it is no such URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise Invalid(f"the URL of {name}: expected http://host:port or https://host:port, without user and query")
        self._name = name
        self._url = url.rstrip("/")
        self._authorization = authorization
        self._login_setting = login_setting
        self._accept = accept
        self._timeout_s = timeout_ms / 1000
        self._bytes_max = bytes_max
        self._redirect_count_max = redirect_count_max
        self.host = parts.hostname
        self.is_readable_on_the_way = _is_readable(url)
        """Whether others on the way could read what is sent."""
        self._reach = Reach(name)
        self._opener = OpenerDirector()
        for handler in (HttpHandler(), HttpsHandler(context=context), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
            self._opener.add_handler(handler)

    async def get(self, *path: str, **query: str) -> Any:
        """Return the JSON document at a path, whose parts are quoted here."""
        url = self._at(path) + (f"?{urlencode(query)}" if query else "")
        return await self._within(self._document, url)

    async def change(self, method: str, *path: str, body: object = None) -> None:
        """Send a request that changes something; `body`: None, or what is sent as JSON. Its answer is dropped."""
        sent = None if body is None else json.dumps(body).encode()
        await self._within(self._ask, method, self._at(path), sent)

    async def _within(self, work: Callable[..., Any], *given: Any) -> Any:
        """Run `work` in a thread. A name server that does not answer keeps the thread, but not the import."""
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                return await asyncio.to_thread(work, *given)
        except TimeoutError as error:
            raise Unavailable(f"{self._name} did not answer within {2 * self._timeout_s:.0f} s") from error

    def _at(self, path: tuple[str, ...]) -> str:
        try:
            return "/".join([self._url, *(quote(part, safe="") for part in path)])
        except UnicodeEncodeError as error:
            raise Corrupt(f"{self._name} has given a name that is not text: {path!a}") from error

    def _document(self, url: str) -> Any:
        data = self._ask("GET", url, None)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Corrupt(f"the answer of {self._name} to {url} is not JSON") from error

    def _ask(self, method: str, url: str, body: bytes | None) -> bytes:
        redirects, ends_at = Redirects(self._reach), time.monotonic() + self._timeout_s
        for _ in range(self._redirect_count_max + 1):
            request = Request(url, data=body, headers=self._headers(url, body), method=method)  # noqa: S310 - http or https
            request.ends_at = ends_at  # type: ignore[attr-defined]
            try:
                answer = self._opener.open(redirects.of(request), timeout=self._timeout_s)
                if answer is None:  # no handler took it
                    raise Unavailable(f"{self._name} did not answer {url}")
                with answer:
                    return self._read(answer, url)
            except HTTPError as error:
                with error:
                    if error.code not in _REDIRECTS or not self._redirect_count_max:
                        raise self._error(error.code, url) from error
                    url = self._moved(url, error.headers.get("Location", ""))
            except (URLError, OSError, HTTPException, UnicodeError) as error:  # UnicodeError: no host has this name
                raise Unavailable(f"{self._name} did not answer {url}: {error}") from error
        raise Unavailable(f"{self._name} redirected more than {self._redirect_count_max} times, last to {url}")

    def _headers(self, url: str, body: bytes | None) -> dict[str, str]:
        headers = {"Accept": self._accept}
        if authorization := self._authorization(urlsplit(url).hostname or "", _is_readable(url)):
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def _read(self, answer: HTTPResponse, url: str) -> bytes:
        found = bytearray()
        while chunk := answer.read1(_READ_BYTES):
            found += chunk
            if len(found) > self._bytes_max:
                raise Corrupt(f"the answer of {self._name} to {url} has more than {self._bytes_max} bytes")
        if answer.length:
            raise Unavailable(f"{self._name} ended its answer to {url} before its last {answer.length} bytes")
        return bytes(found)

    def _moved(self, url: str, to: str) -> str:
        """Return the address of a redirect. Raises `Denied`: what is sent would be readable there; `Corrupt`: it is none."""
        try:
            before, after = urlsplit(url), urlsplit(to)
        except ValueError as error:
            raise Corrupt(f"{self._name} redirects {url} to no address") from error
        if after.scheme not in ("http", "https") or not after.hostname:
            raise Corrupt(f"{self._name} redirects {url} to no address")
        if before.scheme == "https" and after.scheme == "http":
            raise Denied(f"{self._name} redirects {url} from https:// to http://")
        return to

    def _error(self, status: int, url: str) -> Exception:
        match status:
            case 404:
                return NotFound(f"{self._name} has no {url}")
            case 401 | 403:
                return Denied(f"{self._name} refuses {url} (HTTP {status}): see {self._login_setting}")
            case 409:
                return AlreadyExists(f"{self._name} has {url} already")
            case 405 | 412:
                return Conflict(f"{self._name} cannot do {url} (HTTP {status})")
            case _:
                return Unavailable(f"{self._name} answered {url} with HTTP {status}")


def _is_readable(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
