"""Asks an HTTP API of a source for JSON: one request at a time, with a limit of time, size and redirects.

Libraries for HTTP are those of the servers (`serving`, `protocols`), which imports do not need.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
)

from bearlake.errors import AlreadyExists, Conflict, Corrupt, Denied, Invalid, NotFound, Unavailable
from bearlake.serving.listener import is_loopback

_REDIRECTS = (307, 308)


class HttpSource:
    """One API. Raises from every request:

    NotFound: there is no such resource.
    Denied: the API refuses this user.
    AlreadyExists: HTTP 409. Conflict: HTTP 412 and 405.
    Corrupt: the answer is no JSON, or too large.
    Unavailable: no answer, or any other error.
    """

    def __init__(
        self,
        name: str,
        url: str,
        authorization: Callable[[], str],
        context: ssl.SSLContext,
        *,
        login_setting: str,
        accept: str = "application/json",
        timeout_ms: int,
        bytes_max: int,
        redirect_count_max: int = 0,
    ) -> None:
        """`name`: what messages call it, such as "the registry". `url`: `http://host:port` or `https://…`, perhaps with a path.

        `authorization` returns the header of that name for each request; empty: none. `login_setting`: named in messages about a refusal.
        `redirect_count_max`: redirects that are followed, with the same login, but never from https:// to http://.
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
        self.is_readable_on_the_way = parts.scheme == "http" and not is_loopback(parts.hostname)
        """Whether others on the way could read what is sent."""
        self.host = parts.hostname
        self._opener = OpenerDirector()
        for handler in (HTTPHandler(), HTTPSHandler(context=context), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
            self._opener.add_handler(handler)

    async def get(self, *path: str, **query: str) -> Any:
        """Return the JSON document at a path, whose parts are quoted here."""
        url = self._at(path) + (f"?{urlencode(query)}" if query else "")
        data = await asyncio.to_thread(self._ask, "GET", url, None)
        try:
            return json.loads(data)
        except ValueError as error:
            raise Corrupt(f"the answer of {self._name} to {url} is not JSON") from error

    async def change(self, method: str, *path: str, body: object = None) -> None:
        """Send a request that changes something; `body`: None, or what is sent as JSON. Its answer is dropped."""
        sent = None if body is None else json.dumps(body).encode()
        await asyncio.to_thread(self._ask, method, self._at(path), sent)

    def _at(self, path: tuple[str, ...]) -> str:
        return "/".join([self._url, *(quote(part, safe="") for part in path)])

    def _ask(self, method: str, url: str, body: bytes | None) -> bytes:
        headers = {"Accept": self._accept}
        if authorization := self._authorization():
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        for _ in range(self._redirect_count_max + 1):
            request = Request(url, data=body, headers=headers, method=method)  # noqa: S310 - http or https
            try:
                answer = self._opener.open(request, timeout=self._timeout_s)
                if answer is None:  # no handler took it
                    raise Unavailable(f"{self._name} did not answer {url}")
                with answer:
                    data: bytes = answer.read(self._bytes_max + 1)
                break
            except HTTPError as error:
                with error:
                    if error.code not in _REDIRECTS or not self._redirect_count_max:
                        raise self._error(error.code, url) from error
                    url = self._moved(url, error.headers.get("Location", ""))
            except (URLError, OSError, HTTPException) as error:
                raise Unavailable(f"{self._name} did not answer {url}: {error}") from error
        else:
            raise Unavailable(f"{self._name} redirected more than {self._redirect_count_max} times, last to {url}")
        if len(data) > self._bytes_max:
            raise Corrupt(f"the answer of {self._name} to {url} has more than {self._bytes_max} bytes")
        return data

    def _moved(self, url: str, to: str) -> str:
        """Return the address of a redirect. Raises `Denied`: the login would be readable there; `Corrupt`: it is none."""
        before, after = urlsplit(url), urlsplit(to)
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
