"""Which names and origins a request may carry, so that a web page cannot use its visitor's browser against this server.

- DNS rebinding: a page's own name resolves to this server, so the browser takes both for one origin. The request's Host header then names
  the page's server. A request without TLS must name this server by an IP address, by a name that cannot be registered in the public DNS, or
  by a configured name. With TLS, the certificate proves the name.
- Cross-site request forgery: a page of another origin sends a request that changes something, such as a form. Browsers name the origin of
  such requests (`Origin`, `Sec-Fetch-Site`). It must be the server's own or a configured one.

Programs that are not browsers send neither `Origin` nor `Sec-Fetch-Site`. Source: CWE-350, CWE-352; WHATWG Fetch ("Origin" header); W3C
Fetch Metadata; RFC 6761, 6762, 8375 (reserved names); Kubernetes' service names (`name.namespace.svc`).
"""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import hdrs, web

RESERVED_SUFFIXES = (
    ".localhost",
    ".local",
    ".internal",
    ".home.arpa",
    ".svc",
    ".test",
    ".example",
    ".invalid",
)
"""Ends of names that the public DNS never has."""
ANY = "*"
_SAME_SITE = frozenset({"same-origin", "none"})


class ForeignRequest(Exception):
    """A browser sent the request on behalf of a page that may not use this server."""


class Origins:
    """The names of one server, and the origins of the pages that may change something through it."""

    def __init__(self, host_names: Collection[str] = (), origins: Collection[str] = ()) -> None:
        """`host_names`: further names of this server. `origins`: allowed origins of pages. `*` allows all."""
        self._names = {name.lower().rstrip(".") for name in host_names}
        self._origins = origins

    def add_name(self, name: str) -> None:
        """Allow a further name, such as a listener's advertised host."""
        self._names.add(name.lower().rstrip("."))

    def check(self, request: web.Request, *, is_safe: bool) -> None:
        """Raise `ForeignRequest` if a page that may not use this server is behind the request. `is_safe`: the method changes nothing."""
        host = request.headers.get(hdrs.HOST, "")
        if not request.secure and not self._is_own(host):
            raise ForeignRequest(
                f"this server is not known as {_name(host)[:100]!r}: use its address, or add the name to the setting host_names"
            )
        if not is_safe and not self._may_change(request, host):
            raise ForeignRequest("a web page of another origin may not send this request (setting cors_origins)")

    def check_ambient(self, request: web.Request) -> None:
        """Raise `ForeignRequest` if a page that is allowed only by `*` sends a login that its browser added by itself.

        A browser adds passwords and certificates that its user gave to this server to the requests of any page. A token is the page's own.
        """
        scheme = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")[0].lower()
        if (
            ANY in self._origins
            and scheme != "bearer"
            and not self._is_named(request, request.headers.get(hdrs.HOST, ""))
        ):
            raise ForeignRequest(
                "a web page of another origin must log in with a token, or be named in the setting cors_origins"
            )

    def _is_own(self, host: str) -> bool:
        name = _name(host)
        if "." not in name or name in self._names or ANY in self._names or name.endswith(RESERVED_SUFFIXES):
            return True
        return _is_address(name)

    def _may_change(self, request: web.Request, host: str) -> bool:
        return ANY in self._origins or self._is_named(request, host)

    def _is_named(self, request: web.Request, host: str) -> bool:
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None:
            return request.headers.get("Sec-Fetch-Site", "none") in _SAME_SITE
        return origin in self._origins or urlsplit(origin).netloc.lower() == host.lower() != ""


def _name(host: str) -> str:
    """The name or address in a Host header, without its port."""
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.strip("[]").lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
