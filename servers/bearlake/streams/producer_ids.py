"""Producer ids for idempotent producers. The server reserves ids in blocks, so that a new producer rarely costs a transaction.

When the server stops, the unused ids of its block are lost; ids have 63 bits, so they do not run out. Source: KIP-98.
"""

import asyncio
from collections.abc import Iterator

from bearlake.metadata.producer_ids import ProducerIds as ProducerIdStore

BLOCK_COUNT = 1000


class ProducerIds:
    """Allocates producer ids from this server's block."""

    def __init__(self, store: ProducerIdStore) -> None:
        self._store = store
        self._block: Iterator[int] = iter(())
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """Return an id that no server has ever returned before. Raises `Unavailable`."""
        async with self._lock:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._store.allocate(BLOCK_COUNT))
                producer_id = next(self._block)
            return producer_id
