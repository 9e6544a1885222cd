"""A cache of encoded responses: Metadata of all streams takes 2.5 us per partition to build and is the same for many clients.

A handler may return `Rendered` instead of a message. The cache is valid until the catalog or the live servers change.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Executor

from bearlake.protocols.kafka import codec

ENTRY_COUNT_MAX = 8
"""Largest number of cached responses, one for each version, listener and zone in use."""

AT_ONCE_MAX = 2_000
"""Entries (such as streams and partitions) of a response that is encoded on the event loop: about 5 ms."""

_SIZE_AND_CORRELATION = struct.Struct(">ii")


class Rendered:
    """An encoded response without its header."""

    __slots__ = ("chunks", "size")

    def __init__(self, chunks: Sequence[codec.Buffer]) -> None:
        self.chunks = chunks
        self.size = sum(map(len, chunks))

    def frame(self, correlation_id: int, header_version: int) -> list[codec.Buffer]:
        """The complete response frame, as `codec.ResponseCodec.frame` returns it."""
        tags = b"\0" * header_version
        head = _SIZE_AND_CORRELATION.pack(4 + len(tags) + self.size, correlation_id)
        return [head + tags, *self.chunks]


async def render(
    workers: Executor, key: codec.ApiKey, version: int, size: int, response: Callable[[], codec.Message]
) -> Rendered:
    """Build and encode a response with this many entries; in a thread if they are many."""

    def work() -> Rendered:
        return Rendered(codec.response(key, version).encode(response()))

    return work() if size <= AT_ONCE_MAX else await asyncio.get_running_loop().run_in_executor(workers, work)


class Renderings:
    """Cached responses by key, all for one `state`."""

    def __init__(self) -> None:
        self._state: Hashable = None
        self._responses: dict[Hashable, asyncio.Future[Rendered]] = {}

    async def get(self, state: Hashable, key: Hashable, render: Callable[[], Awaitable[Rendered]]) -> Rendered:
        """Return the response cached under `key`; render it, once for all that ask meanwhile, if the cache has none for this `state`."""
        if state != self._state:
            self._state = state
            self._responses.clear()
        found = self._responses.get(key)
        if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
            if len(self._responses) >= ENTRY_COUNT_MAX:
                self._responses.pop(next(iter(self._responses)))
            found = self._responses[key] = asyncio.ensure_future(render())
        return await asyncio.shield(found)
