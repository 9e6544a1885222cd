"""Decompresses stored batches for readers: on the event loop if they are small, otherwise in a thread.

A batch of a few KiB may have 64 MiB uncompressed, and a read of 1 MiB may return hundreds of such batches. The size is not known before
the batch is decompressed, so a first attempt stops at `AT_ONCE_BYTES`. All attempts of one turn of the loop share its budget.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bearlake.errors import BearlakeError, TooLarge
from bearlake.protocols.pulsar import entries
from bearlake.protocols.pulsar.entries import Buffer
from bearlake.records.batch import Compression
from bearlake.streams.checking import Checks
from bearlake.streams.subscriptions.cleaned_batches import Part, split

T = TypeVar("T")

AT_ONCE_BYTES = 256 * 1024
"""Uncompressed bytes of a batch that is read on the event loop: 0.1 ms to decompress, 1 ms for the smallest records."""
SPLIT_AT_ONCE_BYTES = 8 * 1024
"""Size of a batch whose records are encoded anew on the event loop: 1 ms for the smallest records."""
_SNAPPY_COST = 4
"""Cost of a compressed byte of snappy, whose blocks of at least 5 bytes are decompressed one by one: 64 KiB take up to 6 ms."""

Work = Callable[[Buffer | None, int], T]
"""What to do with the records of a batch (`entries.records_of`). It may run in a thread, and must not return None.

The number limits the bytes that it makes of the records, to a small multiple. Raises `TooLarge` for more.
"""


class Opener:
    """Decompresses batches for one server. Use it from the event loop's thread only."""

    def __init__(self, checks: Checks, uncompressed_bytes_max: int) -> None:
        """A batch of more than `uncompressed_bytes_max` bytes uncompressed cannot be read. `checks` provides threads and the budget."""
        self.uncompressed_bytes_max = uncompressed_bytes_max
        self._off_loop = checks.off_loop
        self._budget = checks.budget

    def at_once(self, batch: memoryview, work: Work[T]) -> T | None:
        """Return what `work` returns for the records of a batch; None if that is too much work for this turn of the event loop.

        Raises `Corrupt`, `TooLarge`, and what `work` raises.
        """
        cost = len(batch) * (_SNAPPY_COST if entries.codec_of(batch) == Compression.SNAPPY else 1)
        bytes_max = min(self._budget.left, AT_ONCE_BYTES, self.uncompressed_bytes_max)
        if cost > bytes_max:
            return None
        try:
            records = entries.records_of(batch, bytes_max)
            self._budget.spend(max(cost, 0 if records is None else len(records)))
            return work(records, bytes_max)
        except BearlakeError as error:
            self._budget.spend(bytes_max)
            if isinstance(error, TooLarge) and bytes_max < self.uncompressed_bytes_max:
                return None
            raise

    async def opened(self, batch: memoryview, work: Work[T]) -> T:
        """As `at_once`, for any amount of work: waits for the next turn of the loop, or a thread. `batch` must not change meanwhile."""
        if self._budget.left < AT_ONCE_BYTES:
            await asyncio.sleep(0)
        result = self.at_once(batch, work)
        if result is None:
            return await self._off_loop(self._open, batch, work)
        return result

    async def split(self, batch: memoryview, base: int, end: int, start: int) -> list[Part]:
        """As `cleaned_batches.split`; in a thread, unless the batch is small. Raises `Corrupt`, `TooLarge`."""
        if len(batch) <= SPLIT_AT_ONCE_BYTES and not entries.codec_of(batch):
            return split(batch, base, end, start, self.uncompressed_bytes_max)
        return await self._off_loop(split, batch, base, end, start, self.uncompressed_bytes_max)

    def _open(self, batch: memoryview, work: Work[T]) -> T:
        return work(entries.records_of(batch, self.uncompressed_bytes_max), self.uncompressed_bytes_max)
