"""A gate that bounds the bytes held at once; further callers wait in line."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteGate:
    """Bounds the bytes held at once, first come, first served. Use it from the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held_bytes = 0

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait for room and hold `size` bytes for the block; a request larger than the bound passes alone."""
        if self._waiting or not self._fits(size):
            admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, admitted))
            try:
                await admitted
            except asyncio.CancelledError:
                if not admitted.cancelled():
                    self.held_bytes -= size
                self._admit()
                raise
        else:
            self.held_bytes += size
        try:
            yield
        finally:
            self.held_bytes -= size
            self._admit()

    def _fits(self, size: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size <= self._bytes_max

    def _admit(self) -> None:
        while self._waiting:
            size, admitted = self._waiting[0]
            if not admitted.cancelled():  # a cancelled task may not have run yet: skip its turn
                if not self._fits(size):
                    return
                self.held_bytes += size
                admitted.set_result(None)
            self._waiting.popleft()
