"""The address through which a client reaches this server, for `base_uri`: the server's own address, or that of a proxy before it.

    X-Forwarded-Proto, X-Forwarded-Host   set by a proxy; of several values the first (the outermost proxy)
    Host                                  the host in the client's URL
    the listener's advertised address     for clients without these headers, as HTTP/1.0 allows

An invalid scheme or `host[:port]` counts as absent. Source: RFC 9110, 7.2; RFC 3986, 3.2.2.
"""

import re
from typing import NamedTuple

from aiohttp import hdrs, web

PROTO = "X-Forwarded-Proto"
HOST = "X-Forwarded-Host"

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class Address(NamedTuple):
    """`http` or `https`, and `host[:port]`."""

    scheme: str
    host: str


def of_client(request: web.Request, own: str) -> Address:
    """Return the address through which the client reaches this server; `own` is the listener's address."""
    scheme = _first(request, PROTO).lower()
    candidates = (_first(request, HOST), request.headers.get(hdrs.HOST, ""))
    host = next((candidate for candidate in candidates if _HOST.fullmatch(candidate)), own)
    return Address(scheme if scheme in ("http", "https") else request.scheme, host)


def _first(request: web.Request, name: str) -> str:
    return request.headers.get(name, "").partition(",")[0].strip()
