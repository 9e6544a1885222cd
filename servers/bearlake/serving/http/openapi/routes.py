"""GET /openapi.json, and GET /docs to browse it: a self-contained page.

The first request makes the document: most servers are never asked for it, and it would be the largest part of their start.
"""

import html
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec
from aiohttp import web

from bearlake.serving.http.openapi import document
from bearlake.serving.http.openapi.model import Description

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{font-size:.95em}summary{cursor:pointer;padding:.2rem 0}pre{background:#f4f4f4;padding:.6rem;overflow:auto}"
    "b{display:inline-block;min-width:4.5rem}"
)

_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""The page runs no script and loads nothing, and no other page may frame it."""


class DocumentRoutes:
    """Handlers of the document, which describes all routes of the application, including these."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._app: web.Application

    def add_to(self, app: web.Application) -> None:
        """Register the handlers."""
        app.router.add_get("/openapi.json", self.document)
        app.router.add_get("/docs", self.page)
        self._app = app

    async def document(self, request: web.Request) -> web.Response:
        """Get the OpenAPI document."""
        return web.Response(body=self._text, content_type="application/json")

    async def page(self, request: web.Request) -> web.Response:
        """Get the OpenAPI document as an HTML page."""
        return web.Response(text=self._page, content_type="text/html", headers=_PAGE_HEADERS)

    @cached_property
    def _text(self) -> bytes:
        return json.dumps(self._made()).encode()

    @cached_property
    def _page(self) -> str:
        return _page(self._made())

    def _made(self) -> dict[str, Any]:
        return document.build(self._description, document.routes_of(self._app))


def _page(made: Mapping[str, Any]) -> str:
    parts = []
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            rest = {key: operation[key] for key in ("parameters", "requestBody", "responses") if operation.get(key)}
            # `indent` of `json.dumps` takes ten times as long, and the event loop waits.
            details = html.escape(msgspec.json.format(json.dumps(rest), indent=1))
            head = f"<b>{method.upper()}</b> <code>{html.escape(path)}</code> {html.escape(operation['summary'])}"
            parts.append(f"<details><summary>{head}</summary><pre>{details}</pre></details>")
    title = html.escape(f"{made['info']['title']} {made['info']['version']}")
    link = '<p><a href="/openapi.json">openapi.json</a></p>'
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html lang=en><head>{head}</head><body><h1>{title}</h1>{link}{''.join(parts)}</body></html>"
