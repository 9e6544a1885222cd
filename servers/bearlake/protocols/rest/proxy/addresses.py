"""The address that a client uses for this server, and so is told as part of `base_uri`: its own, or that of what stands before it.

    X-Forwarded-Proto, X-Forwarded-Host   set by a proxy that the client talks to; of several values the first, the outermost proxy's
    Host                                  what the client wrote into its URL
    the listener's advertised address     for clients that say nothing, as HTTP/1.0 allows

What is no scheme or no `host[:port]` is ignored, as if it were not there. Source: RFC 9110, 7.2; RFC 3986, 3.2.2.
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
    """The address by which the request's client reaches this server; `own` is the listener's."""
    scheme = _first(request, PROTO).lower()
    candidates = (_first(request, HOST), request.headers.get(hdrs.HOST, ""))
    host = next((one for one in candidates if _HOST.fullmatch(one)), own)
    return Address(scheme if scheme in ("http", "https") else request.scheme, host)


def _first(request: web.Request, name: str) -> str:
    return request.headers.get(name, "").partition(",")[0].strip()
