"""Passes requests of the page on to the public APIs: the caller's login goes with each request and stays nowhere.

Answers are streamed, so that a large one needs little memory, and a browser that reads slowly holds the API back. A challenge of an API
(`WWW-Authenticate`) is left out: a browser would ask for a password by itself, and then add it to requests of any page.
"""

from collections.abc import Mapping

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from bearlake.errors import Invalid, Unavailable
from bearlake.serving.console.routes import APIS, check_exposure, passes
from bearlake.serving.console.settings import ConsoleSettings
from bearlake.serving.trust import PeerTrust

_SENT = (hdrs.AUTHORIZATION, hdrs.ACCEPT, hdrs.CONTENT_TYPE)
"""Headers of a request that an API gets."""
_RETURNED = (hdrs.CONTENT_TYPE, hdrs.RETRY_AFTER)
"""Headers of an answer that the page gets."""
_PIECE_BYTES = 64 * 1024
_HOPS_MAX = 3
"""Servers that are asked for one request to Pulsar's HTTP API: the partition's dispatcher may move meanwhile."""
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ForwardingRoutes:
    """The handlers under `/api/{admin,rest,registry}`."""

    def __init__(self, urls: Mapping[str, str], settings: ConsoleSettings) -> None:
        """`urls` by API, without a slash at the end. Raises `Invalid` if the authorities of the settings cannot be used."""
        self._urls = urls
        self._settings = settings
        self._trust = PeerTrust(settings.tls_ca_file)
        self._session: aiohttp.ClientSession | None = None

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_route("*", f"/api/{{api:{'|'.join(APIS)}}}/{{path:.*}}", self.forward)

    async def close(self) -> None:
        """Close all connections to the APIs. Safe to repeat."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on to a public API."""
        api = request.match_info["api"]
        raw, _, query = request.rel_url.raw_path_qs.removeprefix(f"/api/{api}").partition("?")
        if api not in self._urls or not passes(api, request.method, raw):
            raise web.HTTPNotFound(text=f"the console does not pass {request.method} {raw[:200]} on to the {api} API")
        url = URL(self._urls[api] + raw + (f"?{query}" if query else ""), encoded=True)
        body = await request.read()
        headers = {name: request.headers[name] for name in _SENT if name in request.headers}
        try:
            for _ in range(_HOPS_MAX):
                async with self._opened().request(
                    request.method,
                    url,
                    data=body or None,
                    headers=headers,
                    allow_redirects=False,
                    ssl=self._trust.context(),
                ) as answer:
                    other = self._other_server(api, request.method, answer)
                    if other is None:
                        return await self._returned(request, answer)
                    url = other
        except aiohttp.ClientConnectionError as error:
            raise Unavailable(f"the {api} API at {self._urls[api]} does not answer: {error}") from error
        except (TimeoutError, aiohttp.ClientError) as error:
            raise Unavailable(f"the {api} API at {self._urls[api]} did not answer: {error}") from error
        raise Unavailable(f"the {api} API sent the request from server to server")

    def _other_server(self, api: str, method: str, answer: aiohttp.ClientResponse) -> URL | None:
        """Return where Pulsar's HTTP API sends a request: the server that dispatches the partition. None: nowhere, or where none may go."""
        if api != "pulsar" or answer.status != 307:
            return None
        own = URL(self._urls[api])
        try:
            url = URL(answer.headers.get(hdrs.LOCATION, ""), encoded=True)
            check_exposure(self._settings.host, {api: str(url)})
        except (ValueError, Invalid):
            return None
        may_go = url.scheme == own.scheme and bool(url.host) and url.user is None and passes(api, method, url.raw_path)
        return url if may_go else None

    async def _returned(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        headers = dict(_HEADERS)
        headers.update({name: answer.headers[name] for name in _RETURNED if name in answer.headers})
        response = web.StreamResponse(status=answer.status, headers=headers)
        if answer.content_length is not None and answer.status not in (204, 304):
            response.content_length = answer.content_length
        await response.prepare(request)
        try:
            async for piece in answer.content.iter_chunked(_PIECE_BYTES):
                await response.write(piece)
        except (TimeoutError, aiohttp.ClientError):
            # The head was sent: only a cut connection tells the page that the answer is not complete.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the API did not complete its answer") from None
        await response.write_eof()
        return response

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session; it is made inside of the event loop."""
        if self._session is None:
            settings = self._settings
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=settings.upstream_connection_count_max),
                timeout=aiohttp.ClientTimeout(
                    total=settings.request_timeout_ms / 1000, sock_connect=settings.connect_timeout_ms / 1000
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=(hdrs.USER_AGENT, hdrs.ACCEPT_ENCODING),
                headers={hdrs.ACCEPT_ENCODING: "identity"},
            )
        return self._session
