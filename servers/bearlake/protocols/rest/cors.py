"""Which web pages browsers let call a server. Source: WHATWG Fetch, "CORS protocol"."""

from collections.abc import Collection

from aiohttp import hdrs, web

_AGE_S = "600"
"""How long a browser may remember a preflight."""
_EXPOSED_HEADERS = "*"


def allow(request: web.Request, response: web.StreamResponse, origins: Collection[str]) -> None:
    """Say on an answer that the page's origin may read it, if it is one of the origins (`*`: any)."""
    origin = request.headers.get(hdrs.ORIGIN)
    if origin and ("*" in origins or origin in origins):
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _EXPOSED_HEADERS
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)


def is_preflight(request: web.Request) -> bool:
    """Whether a browser asks before it sends a request of a page."""
    return request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers


def preflight(request: web.Request) -> web.Response:
    """The answer to that; whether the origin may is said by `allow`."""
    headers = {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: request.headers[hdrs.ACCESS_CONTROL_REQUEST_METHOD],
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "*"),
        hdrs.ACCESS_CONTROL_MAX_AGE: _AGE_S,
    }
    return web.Response(status=204, headers=headers)
