"""A gate that lets so many bytes through at once; who comes later waits in line."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteGate:
    """Bounds the bytes that are held at once, first come, first served. Used from the event loop's thread only."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiting)

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Hold `size` bytes for the block, when there is room for them; more than the bound pass alone."""
        if self._waiting or not self._fits(size):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
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
            size, turn = self._waiting[0]
            if not turn.cancelled():  # else its task has given up, and may not have run since
                if not self._fits(size):
                    return
                self.held_bytes += size
                turn.set_result(None)
            self._waiting.popleft()
