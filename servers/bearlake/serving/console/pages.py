"""The page and its parts, as files of this package: read once, served from memory, and guarded by a content security policy.

The policy allows scripts, styles and requests of this origin only, and neither inline scripts nor frames. Source: W3C, "Content Security
Policy Level 3".
"""

import hashlib
from pathlib import Path

from aiohttp import hdrs, web

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""What a page of the console may load, and where it may be shown."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Headers of every part of the page."""


class PageRoutes:
    """The handlers of the page and its parts."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Read all parts."""
        self._parts = {
            path.relative_to(folder).as_posix(): (path.read_bytes(), _TYPES[path.suffix])
            for path in sorted(folder.rglob("*"))
            if path.suffix in _TYPES
        }
        self._tags = {name: f'"{hashlib.sha256(octets).hexdigest()[:32]}"' for name, (octets, _) in self._parts.items()}

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get("/", self.page)
        router.add_get("/static/{name:.+}", self.part)

    async def page(self, request: web.Request) -> web.Response:
        """Get the page."""
        return self._answer(request, "index.html")

    async def part(self, request: web.Request) -> web.Response:
        """Get a part of the page."""
        return self._answer(request, request.match_info["name"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        if name not in self._parts:
            raise web.HTTPNotFound(text="the console has no such file")
        octets, content_type = self._parts[name]
        headers = {**HEADERS, hdrs.ETAG: self._tags[name]}
        if request.headers.get(hdrs.IF_NONE_MATCH) == self._tags[name]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=octets, content_type=content_type, charset="utf-8", headers=headers)
