"""Requests to the HTTP API of other servers, for what only the dispatching server of a partition knows or can do.

A request names the client for which it is made by a token of the deployment (`serving/http/login.py`), if clients log in. With TLS, this
machine must trust the certificates of the other servers. Servers that ask for client certificates do not ask each other.
"""

import json
from typing import Any

import aiohttp
from yarl import URL

from bearlake.errors import Unavailable
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http.problems import Problem
from bearlake.serving.http.login import FORWARDED, HttpListenerLogin
from bearlake.streams.principal import Principal
from bearlake.streams.subscriptions.model import NotHolder

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Largest response in bytes: the statistics of a partition with its consumers."""


class Peers:
    """The other servers of the deployment. Call `open` inside the event loop, before the first request."""

    def __init__(
        self, context: PulsarContext, scheme: str, *, timeout_ms: int, login: HttpListenerLogin | None = None
    ) -> None:
        """`login`: how clients of all servers log in; None: they need not.

        `scheme` is http or https, as of this server's listener; all servers use the same. `timeout_ms` limits one request."""
        self._context = context
        self._scheme = scheme
        self._login = login
        self._timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Open the HTTP client session."""
        self._session = aiohttp.ClientSession(timeout=self._timeout)

    async def close(self) -> None:
        """Close the session and its connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, who: Principal, error: NotHolder, path: str) -> dict[str, Any]:
        """GET a JSON object from the server that dispatches a partition, as named by `error`. Raises as `send`."""
        found = await self._ask(who, error, "GET", path, None)
        if not isinstance(found, dict):
            raise Unavailable("another server answered with JSON that is not an object")
        return found

    async def send(self, who: Principal, error: NotHolder, method: str, path: str, body: bytes) -> None:
        """Forward a request to the server that dispatches a partition, as named by `error`.

        Raises:
            NotHolder: the address of that server is unknown (raises `error` itself).
            Problem: the server rejects the request; with its status and reason.
            Unavailable: the server did not answer, or no longer dispatches the partition.
        """
        await self._ask(who, error, method, path, body)

    async def _ask(self, who: Principal, error: NotHolder, method: str, path: str, body: bytes | None) -> Any:
        address = self._context.http_address_of(error.holder)
        if address is None or error.holder is None or self._session is None:
            raise error
        url = URL(f"{self._scheme}://{address}{path}", encoded=True)
        headers = {FORWARDED: str(self._context.servers.node_id)}
        if self._login is not None:
            headers |= await self._login.pass_on(who, error.holder.node_id, method, url.raw_path_qs)
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                content = await response.content.read(ANSWER_BYTES_MAX + 1)
        except (aiohttp.ClientError, TimeoutError) as failure:
            raise Unavailable(f"server {address} did not answer: {failure!r}") from failure
        if len(content) > ANSWER_BYTES_MAX or response.status // 100 not in (2, 4) or response.status == 401:
            raise Unavailable(f"server {address} answered with status {response.status}")
        try:
            found = json.loads(content) if content else None
        except ValueError as failure:
            raise Unavailable(f"server {address} did not answer with JSON") from failure
        if response.status >= 400:
            raise Problem(response.status, str(found.get("reason")) if isinstance(found, dict) else "refused")
        return found
