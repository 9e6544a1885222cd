"""Producer ids for idempotent producers, taken from the store in blocks so that a new producer costs no transaction.

Ids of a block that is left when the server stops are never used; they are 63 bits wide. Source: KIP-98.
"""

import asyncio
from collections.abc import Iterator

from bearlake.metadata import ProducerIds as ProducerIdStore

BLOCK_COUNT = 1000


class ProducerIds:
    """Hands out producer ids of this server's block."""

    def __init__(self, store: ProducerIdStore) -> None:
        self._store = store
        self._block: Iterator[int] = iter(())
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """An id that was never given before, by any server. Raises `Unavailable`."""
        async with self._lock:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._store.allocate(BLOCK_COUNT))
                producer_id = next(self._block)
            return producer_id
