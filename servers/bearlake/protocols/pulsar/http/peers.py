"""Asking other servers' HTTP API for what they alone know.

Servers trust each other as far as their HTTP listeners go: the API has no authentication. With TLS their certificates must be known to this
machine.
"""

from typing import Any

import aiohttp

from bearlake.errors import Unavailable
from bearlake.protocols.pulsar.broker import Broker
from bearlake.streams.subscriptions.model import NotHolder

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Longest answer: a partition's statistics, consumers included."""


class Peers:
    """The other servers of the deployment. `open` before the first `get`, inside the event loop."""

    def __init__(self, broker: Broker, scheme: str, *, timeout_ms: int) -> None:
        """`scheme`: http or https, of this server's listener and so of all; `timeout_ms` for one answer."""
        self._broker = broker
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
        """The JSON object that the server which dispatches a partition answers with. Raises `NotHolder` again, `Unavailable`."""
        address = self._broker.http_address_of(error.holder)
        if address is None or self._session is None:
            raise error
        try:
            async with self._session.get(f"{self._scheme}://{address}{path}", allow_redirects=False) as response:
                if response.status != 200 or (response.content_length or 0) > ANSWER_BYTES_MAX:
                    raise Unavailable(f"server {address} answered {response.status}")
                found = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as failure:
            raise Unavailable(f"server {address} did not answer: {failure!r}") from failure
        if not isinstance(found, dict):
            raise Unavailable(f"server {address} answered something else")
        return found
