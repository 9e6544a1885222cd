"""Asking other servers' HTTP API for what they alone know, or can do: those that dispatch a partition.

Servers trust each other as far as their HTTP listeners go: the API has no authentication. With TLS their certificates must be known to this
machine.
"""

import json
from typing import Any

import aiohttp
from yarl import URL

from bearlake.errors import Unavailable
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.streams.subscriptions.model import NotHolder

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Longest answer: a partition's statistics, consumers included."""


class Peers:
    """The other servers of the deployment. `open` before the first `get`, inside the event loop."""

    def __init__(self, context: PulsarContext, scheme: str, *, timeout_ms: int) -> None:
        """`scheme`: http or https, of this server's listener and so of all; `timeout_ms` for one answer."""
        self._context = context
        self._scheme = scheme
        self._timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Be ready to ask."""
        self._session = aiohttp.ClientSession(timeout=self._timeout)

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, error: NotHolder, path: str) -> dict[str, Any]:
        """The JSON object that the server which dispatches a partition answers with. Raises as `send`."""
        found = await self._ask(error, "GET", path, None)
        if not isinstance(found, dict):
            raise Unavailable("another server answered something else than an object")
        return found

    async def send(self, error: NotHolder, method: str, path: str, body: bytes) -> None:
        """Let the server that dispatches a partition do what was asked.

        Raises:
            NotHolder: nobody knows where that server is (`error` itself).
            Problem: it refuses, with its status and reason.
            Unavailable: it did not answer, or does not dispatch the partition any more.
        """
        await self._ask(error, method, path, body)

    async def _ask(self, error: NotHolder, method: str, path: str, body: bytes | None) -> Any:
        address = self._context.http_address_of(error.holder)
        if address is None or self._session is None:
            raise error
        url = URL(f"{self._scheme}://{address}{path}", encoded=True)
        try:
            async with self._session.request(method, url, data=body, allow_redirects=False) as response:
                content = await response.content.read(ANSWER_BYTES_MAX + 1)
        except (aiohttp.ClientError, TimeoutError) as failure:
            raise Unavailable(f"server {address} did not answer: {failure!r}") from failure
        if len(content) > ANSWER_BYTES_MAX or response.status // 100 not in (2, 4):
            raise Unavailable(f"server {address} answered {response.status}")
        try:
            found = json.loads(content) if content else None
        except ValueError as failure:
            raise Unavailable(f"server {address} answered no JSON") from failure
        if response.status >= 400:
            raise Problem(response.status, str(found.get("reason")) if isinstance(found, dict) else "refused")
        return found
