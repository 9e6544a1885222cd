"""What this server has acknowledged, and its readers do not see yet.

A server applies a commit of its own at once if the commit is the next log entry. All other entries come from the log a moment later: a
commit behind those of other servers, every end of a transaction, and what a producer sends again to this server after another one has
stored it. A fetch that waits for records is woken by them. A fetch that does not wait would miss what the same client has just been told is
stored. So such a fetch first waits until the server has caught up.

    EndTxn is acknowledged ──> a fetch without a wait ──> head of the log, read now ──> followed up to there ──> the read

Servers that are behind a write of another server do not know it: they answer with fewer records.
"""

import asyncio
import logging
from typing import Protocol

from bearlake.errors import BearlakeError

log = logging.getLogger(__name__)

WAIT_MS = 1_000
"""Longest wait (ms). A server that is further behind answers with what it has."""


class Followed(Protocol):
    """What this server has followed of the log; `streams.catalog.Catalog` implements it."""

    @property
    def position(self) -> int:
        """Log position up to which readers see everything."""

    async def catch_up(self) -> None:
        """Return when readers see every entry that the store had at the time of this call. Raises `Unavailable`."""


class OwnWrites:
    """The newest writes that this server has acknowledged. Use it from the event loop's thread only."""

    def __init__(self, followed: Followed) -> None:
        self._followed = followed
        self._committed = 0
        self._unplaced_count = self._shown_count = 0

    @property
    def are_hidden(self) -> bool:
        """Whether readers may not see all of them yet."""
        return self._committed > self._followed.position or self._unplaced_count > self._shown_count

    def committed(self, position: int) -> None:
        """Note a commit of this server at a log position, which its readers do not see yet."""
        self._committed = max(self._committed, position)

    def unplaced(self) -> None:
        """Note a write that is somewhere in the log: the end of a transaction, or what was stored before this server acknowledged it."""
        self._unplaced_count += 1

    async def shown(self, wait_ms: int) -> None:
        """Return when readers see all of them, or after `WAIT_MS`; at once for a read that waits up to `wait_ms`. Raises nothing."""
        if wait_ms > 0 or not self.are_hidden:
            return
        committed, unplaced_count = self._committed, self._unplaced_count
        try:
            async with asyncio.timeout(WAIT_MS / 1000):
                await self._followed.catch_up()
        except (BearlakeError, TimeoutError) as error:
            log.info("a fetch does not see what was acknowledged here", extra={"error": repr(error)})
            if self._committed == committed:
                self._committed = 0  # the next fetch does not wait for them again
        self._shown_count = max(self._shown_count, unplaced_count)
